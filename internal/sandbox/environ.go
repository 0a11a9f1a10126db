package sandbox

import (
	"maps"
	"slices"
	"strings"
)

// Environ is the environment of a command: base ("K=V" as os.Environ) without
// the keys of the server and of its model providers, then set, which wins.
//
// Left out are the server's own secrets (MNEME_TOKEN, MNEME_SECRET_KEY,
// MNEME_DATABASE_URL, MCP_AUTH_TOKEN), every <PROVIDER>..._API_KEY of the
// providers of spec/harness.md section 6.2, their tokens of other names, and what
// would make plain commands do more than they say: CDPATH (cd) and LESSOPEN
// (less). General credentials such as GITHUB_TOKEN or AWS_ACCESS_KEY_ID stay:
// commands need them.
func Environ(base []string, set map[string]string) []string {
	env := make([]string, 0, len(base)+len(set))
	for _, kv := range base {
		name, _, ok := strings.Cut(kv, "=")
		if _, replaced := set[name]; ok && !replaced && !withheld(name) {
			env = append(env, kv)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		env = append(env, name+"="+set[name])
	}
	return env
}

var withheldNames = []string{
	"MNEME_TOKEN", "MNEME_SECRET_KEY", "MNEME_DATABASE_URL", "MCP_AUTH_TOKEN",
	"ANTHROPIC_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN", "AWS_BEARER_TOKEN_BEDROCK",
	"COPILOT_GITHUB_TOKEN", "HF_TOKEN", "HUGGINGFACE_TOKEN", "CDPATH", "LESSOPEN", "LESSCLOSE",
}

var providerStems = []string{
	"AI_GATEWAY", "ANT_LING", "ANTHROPIC", "AZURE_OPENAI", "BASETEN", "CEREBRAS",
	"CLOUDFLARE", "DEEPSEEK", "FIREWORKS", "GEMINI", "GOOGLE", "GROQ",
	"HUGGINGFACE", "KIMI", "LLAMA_CPP", "LLAMACPP", "LMSTUDIO", "META", "MINIMAX",
	"MISTRAL", "MOONSHOT", "NVIDIA", "OLLAMA", "OPENAI", "OPENCODE", "OPENROUTER",
	"QWEN", "RADIUS", "TOGETHER", "XAI", "XIAOMI", "ZAI", "ZHIPU",
}

func withheld(name string) bool {
	if slices.Contains(withheldNames, name) {
		return true
	}
	if !strings.HasSuffix(name, "_API_KEY") {
		return false
	}
	return slices.ContainsFunc(providerStems, func(stem string) bool {
		return strings.HasPrefix(name, stem+"_")
	})
}
