package llm

import "strings"

// A family is the kind of API that a provider speaks. Only chat completions
// are built; providers of other families are listed and say so.
type family uint8

const (
	otherAPI family = iota
	chatAPI
)

// A provider is a row of the table of providers (spec/harness.md section 6.2).
type provider struct {
	id, label, about string
	api              family
	// kind is what clients call the API family in model settings.
	kind string
	// base is the default base URL; "" = it must be given.
	base string
	// stem makes the names of environment variables: <stem>_API_KEY,
	// <stem>_BASE_URL, <stem>_TIMEOUT_MS. "" = none.
	stem string
	// keys are variables for the key, where <stem>_API_KEY is not the one.
	keys []string
	// bases are more variables for the base URL.
	bases []string
	// keyless providers work without a key.
	keyless bool
	// probed providers are looked for on this machine.
	probed bool
	oauth  bool
	native nativeAPI
	header map[string]string
	quirks quirks
}

// strict is what servers lack that refuse fields they do not know.
const strict = featStore | featNewMaxTokens

// providers is every provider that can be named, in the order it is offered.
// Local servers and the general entry come first.
var providers = []provider{
	{id: "lmstudio", label: "LM Studio", about: "Models on this machine or network, served by LM Studio", api: chatAPI, kind: "lmstudio_openai",
		base: "http://127.0.0.1:1234/v1", stem: "LMSTUDIO", keyless: true, probed: true, native: lmStudioAPI},
	{id: "ollama", label: "Ollama", about: "Models on this machine or network, served by Ollama", api: chatAPI, kind: "ollama",
		base: "http://127.0.0.1:11434/v1", stem: "OLLAMA", keys: []string{"OLLAMA_LOCAL_API_KEY"}, keyless: true, probed: true, native: ollamaAPI,
		quirks: quirks{shortPrompt: true}},
	{id: "llama-cpp", label: "llama.cpp", about: "One model on this machine or network, served by llama-server", api: chatAPI, kind: "openai",
		base: "http://127.0.0.1:8080/v1", stem: "LLAMA_CPP", bases: []string{"LLAMACPP_BASE_URL"}, keyless: true, probed: true, native: llamaCppAPI},
	{id: "openai-compatible", label: "OpenAI-compatible", about: "Any server that speaks chat completions: vLLM, SGLang, LiteLLM and others", api: chatAPI, kind: "openai", keyless: true},

	{id: "openai", label: "OpenAI", about: "GPT models from OpenAI", api: chatAPI, kind: "openai", base: "https://api.openai.com/v1", stem: "OPENAI",
		quirks: quirks{lacks: featReasoning, cacheKey: true}},
	{id: "anthropic", label: "Anthropic", about: "Claude models from Anthropic", kind: "anthropic", base: "https://api.anthropic.com", stem: "ANTHROPIC"},
	{id: "google", label: "Google AI", about: "Gemini models from Google AI Studio", kind: "google_ai", base: "https://generativelanguage.googleapis.com/v1beta", stem: "GEMINI"},
	{id: "google-vertex", label: "Google Vertex AI", about: "Gemini models from Google Cloud", kind: "google_vertex", stem: "GOOGLE_CLOUD"},
	{id: "amazon-bedrock", label: "Amazon Bedrock", about: "Models from Amazon Web Services", kind: "bedrock"},
	{id: "azure-openai-responses", label: "Azure OpenAI", about: "GPT models from Microsoft Azure", kind: "azure", stem: "AZURE_OPENAI"},
	{id: "openai-codex", label: "ChatGPT", about: "GPT models with a ChatGPT subscription", kind: "chatgpt_oauth", base: "https://chatgpt.com/backend-api", oauth: true},
	{id: "github-copilot", label: "GitHub Copilot", about: "Models with a GitHub Copilot subscription", kind: "openai", base: "https://api.individual.githubcopilot.com", oauth: true},
	{id: "openrouter", label: "OpenRouter", about: "Models of many vendors with one key", api: chatAPI, kind: "openrouter", base: "https://openrouter.ai/api/v1", stem: "OPENROUTER",
		header: map[string]string{"X-Openrouter-Title": "mneme"}, quirks: quirks{session: "X-Session-Id"}},
	{id: "xai", label: "xAI", about: "Grok models from xAI", api: chatAPI, kind: "xai", base: "https://api.x.ai/v1", stem: "XAI", quirks: quirks{lacks: strict}},
	{id: "meta", label: "Meta", about: "Models from Meta", kind: "openai", base: "https://api.meta.ai/v1", stem: "META"},
	{id: "groq", label: "Groq", about: "Open models on Groq's hardware", api: chatAPI, kind: "groq", base: "https://api.groq.com/openai/v1", stem: "GROQ"},
	{id: "cerebras", label: "Cerebras", about: "Open models on Cerebras' hardware", api: chatAPI, kind: "cerebras", base: "https://api.cerebras.ai/v1", stem: "CEREBRAS", quirks: quirks{lacks: featStore}},
	{id: "together", label: "Together AI", about: "Open models hosted by Together AI", api: chatAPI, kind: "together", base: "https://api.together.ai/v1", stem: "TOGETHER", quirks: quirks{lacks: strict}},
	{id: "nvidia", label: "NVIDIA", about: "Open models hosted by NVIDIA", api: chatAPI, kind: "openai", base: "https://integrate.api.nvidia.com/v1", stem: "NVIDIA", quirks: quirks{lacks: strict}},
	{id: "huggingface", label: "Hugging Face", about: "Open models through Hugging Face's router", api: chatAPI, kind: "hugging-face", base: "https://router.huggingface.co/v1", stem: "HF", keys: []string{"HF_TOKEN"}, quirks: quirks{lacks: strict}},
	{id: "baseten", label: "Baseten", about: "Open models hosted by Baseten", api: chatAPI, kind: "baseten", base: "https://inference.baseten.co/v1", stem: "BASETEN", quirks: quirks{lacks: strict}},
	{id: "xiaomi", label: "Xiaomi MiMo", about: "MiMo models from Xiaomi", api: chatAPI, kind: "openai", base: "https://api.xiaomimimo.com/v1", stem: "XIAOMI", quirks: quirks{lacks: featStore}},
	{id: "xiaomi-token-plan-cn", label: "Xiaomi MiMo Token Plan (China)", about: "MiMo models with a token plan", api: chatAPI, kind: "openai", base: "https://token-plan-cn.xiaomimimo.com/v1", stem: "XIAOMI_TOKEN_PLAN_CN", quirks: quirks{lacks: featStore}},
	{id: "xiaomi-token-plan-ams", label: "Xiaomi MiMo Token Plan (Europe)", about: "MiMo models with a token plan", api: chatAPI, kind: "openai", base: "https://token-plan-ams.xiaomimimo.com/v1", stem: "XIAOMI_TOKEN_PLAN_AMS", quirks: quirks{lacks: featStore}},
	{id: "xiaomi-token-plan-sgp", label: "Xiaomi MiMo Token Plan (Singapore)", about: "MiMo models with a token plan", api: chatAPI, kind: "openai", base: "https://token-plan-sgp.xiaomimimo.com/v1", stem: "XIAOMI_TOKEN_PLAN_SGP", quirks: quirks{lacks: featStore}},
	{id: "qwen-token-plan", label: "Qwen Token Plan", about: "Qwen models with a token plan", api: chatAPI, kind: "openai", base: "https://token-plan.ap-southeast-1.maas.aliyuncs.com/compatible-mode/v1", stem: "QWEN_TOKEN_PLAN", quirks: quirks{lacks: strict}},
	// The individual plan shares its variable with the one above, which gets it.
	{id: "qwen-token-plan-individual", label: "Qwen Token Plan (individual)", about: "Qwen models with a personal token plan", api: chatAPI, kind: "openai", base: "https://token-plan.ap-southeast-1.maas.aliyuncs.com/compatible-mode/v1", quirks: quirks{lacks: strict}},
	{id: "qwen-token-plan-cn", label: "Qwen Token Plan (China)", about: "Qwen models with a token plan", api: chatAPI, kind: "openai", base: "https://token-plan.cn-beijing.maas.aliyuncs.com/compatible-mode/v1", stem: "QWEN_TOKEN_PLAN_CN", quirks: quirks{lacks: strict}},
	{id: "deepseek", label: "DeepSeek", about: "DeepSeek models from DeepSeek", api: chatAPI, kind: "deepseek", base: "https://api.deepseek.com/v1", stem: "DEEPSEEK", quirks: quirks{lacks: strict}},
	{id: "fireworks", label: "Fireworks AI", about: "Open models hosted by Fireworks AI", api: chatAPI, kind: "fireworks", base: "https://api.fireworks.ai/inference/v1", stem: "FIREWORKS", quirks: quirks{lacks: strict}},
	{id: "vercel-ai-gateway", label: "Vercel AI Gateway", about: "Models of many vendors through Vercel", api: chatAPI, kind: "openai", base: "https://ai-gateway.vercel.sh/v1", stem: "AI_GATEWAY"},
	{id: "zai", label: "Z.ai", about: "GLM models from Z.ai", api: chatAPI, kind: "zai", base: "https://api.z.ai/api/paas/v4", stem: "ZAI", keys: []string{"ZAI_API_KEY", "ZHIPU_API_KEY"}, quirks: quirks{lacks: strict}},
	{id: "zai-coding", label: "Z.ai Coding Plan", about: "GLM models with a coding plan", api: chatAPI, kind: "zai_coding", base: "https://api.z.ai/api/coding/paas/v4", stem: "ZAI_CODING", quirks: quirks{lacks: strict}},
	{id: "zai-coding-cn", label: "Z.ai Coding Plan (China)", about: "GLM models with a coding plan", api: chatAPI, kind: "zai_coding", base: "https://open.bigmodel.cn/api/coding/paas/v4", stem: "ZAI_CODING_CN", quirks: quirks{lacks: strict}},
	{id: "moonshotai", label: "Moonshot AI", about: "Kimi models from Moonshot AI", api: chatAPI, kind: "openai", base: "https://api.moonshot.ai/v1", stem: "MOONSHOT", quirks: quirks{lacks: strict}},
	// As above: one variable, two addresses; the international one gets it.
	{id: "moonshotai-cn", label: "Moonshot AI (China)", about: "Kimi models from Moonshot AI", api: chatAPI, kind: "openai", base: "https://api.moonshot.cn/v1", quirks: quirks{lacks: strict}},
	{id: "kimi-coding", label: "Kimi Coding Plan", about: "Kimi models with a coding plan", kind: "anthropic", base: "https://api.kimi.com/coding", stem: "KIMI"},
	{id: "minimax", label: "MiniMax", about: "MiniMax models from MiniMax", kind: "minimax", base: "https://api.minimax.io/anthropic", stem: "MINIMAX"},
	{id: "minimax-cn", label: "MiniMax (China)", about: "MiniMax models from MiniMax", kind: "minimax", base: "https://api.minimaxi.com/anthropic", stem: "MINIMAX_CN"},
	{id: "mistral", label: "Mistral", about: "Mistral models from Mistral AI", api: chatAPI, kind: "mistral", base: "https://api.mistral.ai/v1", stem: "MISTRAL",
		quirks: quirks{lacks: strict | featStreamOptions | featReasoning}},
	{id: "opencode", label: "OpenCode Zen", about: "Models of many vendors through OpenCode", kind: "openai", stem: "OPENCODE"},
	{id: "opencode-go", label: "OpenCode Go", about: "Open models with an OpenCode subscription", kind: "openai"},
	{id: "cloudflare-workers-ai", label: "Cloudflare Workers AI", about: "Open models on Cloudflare's network", kind: "openai", stem: "CLOUDFLARE"},
	{id: "cloudflare-ai-gateway", label: "Cloudflare AI Gateway", about: "Models of many vendors through Cloudflare", kind: "openai"},
	{id: "radius", label: "Radius", about: "Models through Radius", kind: "openai", stem: "RADIUS"},
	{id: "ant-ling", label: "Ant Ling", about: "Ling models from Ant Group", kind: "openai", stem: "ANT_LING"},
	{id: "ollama-cloud", label: "Ollama Cloud", about: "Large models hosted by Ollama", api: chatAPI, kind: "ollama", base: "https://ollama.com/v1", keys: []string{"OLLAMA_API_KEY"}, stem: "OLLAMA_CLOUD"},
}

// aliases are other names of providers in handles (spec/harness.md section 6.1).
var aliases = map[string]string{
	"openai-responses":  "openai",
	"google_ai":         "google",
	"google_vertex":     "google-vertex",
	"bedrock":           "amazon-bedrock",
	"chatgpt-plus-pro":  "openai-codex",
	"chatgpt-oauth":     "openai-codex",
	"moonshot":          "moonshotai",
	"moonshot_coding":   "kimi-coding",
	"kimi-code":         "kimi-coding",
	"llama.cpp":         "llama-cpp",
	"lmstudio_openai":   "lmstudio",
	"openai_compatible": "openai-compatible",
}

// prefix is what clients put before the id of a provider with a key of its own.
const prefix = "lc-"

// Aliases maps other names of providers to their ids.
func Aliases() map[string]string {
	m := make(map[string]string, len(aliases)+len(providers))
	for name, id := range aliases {
		m[name] = id
	}
	for i := range providers {
		m[prefix+providers[i].id] = providers[i].id
	}
	return m
}

// canonical resolves another name of a provider to its id.
func canonical(name string) string {
	if id, ok := aliases[name]; ok {
		return id
	}
	if id := strings.TrimPrefix(name, prefix); id != name && providerByID(id) != nil {
		return id
	}
	return name
}

func providerByID(id string) *provider {
	for i := range providers {
		if providers[i].id == id {
			return &providers[i]
		}
	}
	return nil
}

// A Field is something to fill in to connect a provider.
type Field struct {
	Key         string
	Label       string
	Placeholder string
	Secret      bool
	Required    bool
}

// The keys of fields, as the App Server names them.
const (
	fieldKey     = "apiKey"
	fieldBase    = "baseUrl"
	fieldTimeout = "timeout"
)

// fields are what a provider asks for; none where it is connected by OAuth.
func (p *provider) fields() []Field {
	if p.oauth {
		return nil
	}
	key := Field{Key: fieldKey, Label: "API Key", Secret: true, Required: !p.keyless}
	base := Field{Key: fieldBase, Label: "Base URL", Placeholder: p.base, Required: p.base == "" && p.api == chatAPI}
	timeout := Field{Key: fieldTimeout, Label: "Timeout", Placeholder: "300s"}
	if p.keyless {
		if base.Placeholder == "" {
			base.Placeholder = "http://127.0.0.1:8000/v1"
		}
		return []Field{base, key, timeout}
	}
	if p.api != chatAPI {
		return []Field{key}
	}
	return []Field{key, base, timeout}
}

// keyVars are the environment variables for the key.
func (p *provider) keyVars() []string {
	if p.keys != nil || p.stem == "" {
		return p.keys
	}
	return []string{p.stem + "_API_KEY"}
}

// baseVars are the environment variables for the base URL.
func (p *provider) baseVars() []string {
	if p.stem == "" {
		return p.bases
	}
	return append([]string{p.stem + "_BASE_URL"}, p.bases...)
}
