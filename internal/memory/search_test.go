package memory_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/memory"
)

// corpus is a small memory in several languages.
var corpus = map[string]string{
	"system/persona.md":            "---\ndescription: Who I am\n---\nI am a helpful assistant. I answer in short sentences.",
	"system/human.md":              "---\ndescription: What I know of the user\n---\n# Person\n\n- Name: Ada Lovelace\n- Lives in Łódź, near the Café Müller\n- Her dog is called Rex\n",
	"reference/deploy.md":          "---\ndescription: How the service is rolled out\ntags: [operations, release]\n---\n# Deployment\n\nThe deployments run every Tuesday from the main branch.\n\n## Rollback\n\nTo roll back, call `letta-code rollback` with the previous version.\n",
	"reference/database.md":        "---\ndescription: Notes on PostgreSQL\ntags: [operations]\n---\nThe database password is rotated by the vault. Connections are pooled by pgbouncer.\n",
	"reference/memoryBlock.md":     "How MemoryBlock and memory_block differ: not at all. HTTPServer listens on 8080.\n",
	"notes/2026/tea.md":            "Ada prefers green tea, brewed for two minutes. She doesn't like coffee.\n",
	"notes/2026/travel.md":         "# Travel\n\nThe flight to Tokyo leaves on the ninth of May.\n\nHotel: Shinjuku Garden.\n",
	"notes/zh.md":                  "用户喜欢绿茶，不喜欢咖啡。数据库的密码每个月更换一次。\n",
	"notes/ja.md":                  "東京タワーの近くに住んでいます。ガソリンは高いです。\n",
	"notes/ko.md":                  "서울에서 회의가 있습니다. 데이터베이스를 백업했습니다.\n",
	"notes/th.md":                  "ฐานข้อมูลสำรองทุกวันอาทิตย์\n",
	"notes/ru.md":                  "Пароль от базы данных хранится в сейфе. Ёлка стоит во дворе.\n",
	"saved/ab/the-key--00.md":      "---\ndescription: The key\nid: mem-00000000000000ab\ntags:\n- house\n- Keys\n---\nThe key to the cellar hangs behind the door. Use C++ for the firmware, C# for the tools.\n",
	"skills/deploy/SKILL.md":       "---\nname: release-train\ndescription: Ships a release\n---\nSteps to ship.\n",
	".memfs.config.json":           "{}",
	"reference/empty-but-named.md": "---\ndescription: Kubernetes cluster credentials\n---\n",
}

func corpusIndex() *memory.Index {
	x := memory.NewIndex()
	x.Update(memory.NewSnapshot("c1", corpus))
	return x
}

func paths(hits []memory.Hit) []string {
	var out []string
	for _, h := range hits {
		out = append(out, h.Path)
	}
	return out
}

func TestRanking(t *testing.T) {
	x := corpusIndex()
	for _, c := range []struct{ query, first string }{
		// words, with endings, accents, case and width
		{"deployment", "reference/deploy.md"},
		{"DEPLOYING", "reference/deploy.md"},
		{"green tea", "notes/2026/tea.md"},
		{"lodz", "system/human.md"},
		{"cafe muller", "system/human.md"},
		{"ＴＯＫＹＯ flight", "notes/2026/travel.md"},
		{"ёлка", "notes/ru.md"},
		{"елка", "notes/ru.md"},
		{"ПАРОЛЬ", "notes/ru.md"},
		// names with hyphens, underscores and capitals
		{"letta-code", "reference/deploy.md"},
		{"lettacode", "reference/deploy.md"},
		{"memory_block", "reference/memoryBlock.md"},
		{"memory-block", "reference/memoryBlock.md"},
		{"http server", "reference/memoryBlock.md"},
		{"doesn't", "notes/2026/tea.md"},
		{"doesnt", "notes/2026/tea.md"},
		{"c++", "saved/ab/the-key--00.md"},
		{"C#", "saved/ab/the-key--00.md"},
		// questions
		{"What is the name of her dog?", "system/human.md"},
		{"Where do I find the key to the cellar?", "saved/ab/the-key--00.md"},
		{"when does the plane to tokyo leave", "notes/2026/travel.md"},
		{"how can I roll back a release?", "reference/deploy.md"},
		{"who are you", "system/persona.md"},
		// fields
		{"release-train", "skills/deploy/SKILL.md"},
		{"rolled out", "reference/deploy.md"},
		{"kubernetes credentials", "reference/empty-but-named.md"},
		{"mem-00000000000000ab", "saved/ab/the-key--00.md"},
		{"house", "saved/ab/the-key--00.md"},
		{"notes travel", "notes/2026/travel.md"},
		{"human", "system/human.md"},
		// scripts without blanks
		{"绿茶", "notes/zh.md"},
		{"用户喜欢什么茶？", "notes/zh.md"},
		{"数据库密码", "notes/zh.md"},
		{"茶", "notes/zh.md"},
		{"東京", "notes/ja.md"},
		{"ガソリン", "notes/ja.md"},
		{"ｶﾞｿﾘﾝ", "notes/ja.md"},
		{"데이터베이스", "notes/ko.md"},
		{"회의", "notes/ko.md"},
		{"ฐานข้อมูล", "notes/th.md"},
		// slips of the keys and parts of words
		{"pasword rotatoin", "reference/database.md"},
		{"kubernets", "reference/empty-but-named.md"},
		{"Lovelcae", "system/human.md"},
		{"bouncer", "reference/database.md"},
		{"postgres", "reference/database.md"},
		{"shinjuk", "notes/2026/travel.md"},
		{"the recieved brewd tea", "notes/2026/tea.md"},
	} {
		hits := x.Search(memory.Query{Text: c.query})
		if len(hits) == 0 || hits[0].Path != c.first {
			t.Errorf("%q finds %v, want %s first", c.query, paths(hits), c.first)
		}
	}
}

func TestFindsNothing(t *testing.T) {
	x := corpusIndex()
	for _, q := range []string{"xylophone", "zzzzzz qqqqqq", "鯨", "...", "🙂"} {
		if hits := x.Search(memory.Query{Text: q}); len(hits) != 0 {
			t.Errorf("%q finds %v", q, paths(hits))
		}
	}
}

// Words that stand together as asked rank before the same words apart, rare words
// before common ones, more of the words before fewer.
func TestRankingOrder(t *testing.T) {
	filler := strings.Repeat("and so on with other things in between of all kinds ", 4)
	s := memory.NewSnapshot("c", map[string]string{
		"together.md": "the blue whale swims. " + filler,
		"apart.md":    "the whale swims. " + filler + " a blue one",
		"one.md":      "something blue, blue and blue. " + filler,
		"other.md":    filler,
	})
	x := memory.NewIndex()
	x.Update(s)
	if diff := cmp.Diff([]string{"together.md", "apart.md", "one.md"}, paths(x.Search(memory.Query{Text: "blue whale"}))); diff != "" {
		t.Error(diff)
	}
}

func TestFilters(t *testing.T) {
	x := corpusIndex()
	for _, c := range []struct {
		q    memory.Query
		want []string
	}{
		{memory.Query{Text: "vault main branch", Tags: []string{"operations"}}, []string{"reference/database.md", "reference/deploy.md"}},
		{memory.Query{Text: "vault main branch", Tags: []string{"OPERATIONS", "release"}}, []string{"reference/deploy.md"}},
		{memory.Query{Text: "vault main branch", Tags: []string{"", " "}, Under: " "}, []string{"reference/database.md", "reference/deploy.md"}},
		{memory.Query{Text: "key", Tags: []string{"keys"}}, []string{"saved/ab/the-key--00.md"}},
		{memory.Query{Text: "key", Tags: []string{"nosuch"}}, nil},
		{memory.Query{Text: "ada", Under: "system"}, []string{"system/human.md"}},
		{memory.Query{Text: "ada", Under: "/notes/2026/"}, []string{"notes/2026/tea.md"}},
		{memory.Query{Text: "ada", Under: "note"}, nil},
		{memory.Query{Text: "ada", TopK: 1}, []string{"notes/2026/tea.md"}},
		{memory.Query{Text: "her flig", Prefix: true}, []string{"notes/2026/travel.md"}},
	} {
		got := paths(x.Search(c.q))
		if len(c.q.Tags) == 1 || c.q.Under == " " {
			slices.Sort(got)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%+v: %s", c.q, diff)
		}
	}
}

func TestHits(t *testing.T) {
	x := corpusIndex()
	hit := x.Search(memory.Query{Text: "cellar key"})[0]
	hit.Score = 0
	want := memory.Hit{
		ID: "mem-00000000000000ab", Path: "saved/ab/the-key--00.md", Label: "saved/ab/the-key--00",
		Snippet: "The key to the cellar hangs behind the door. Use C++ for the firmware, C# for the tools.",
		Tags:    []string{"house", "Keys"},
	}
	if diff := cmp.Diff(want, hit); diff != "" {
		t.Error(diff)
	}
	block := x.Search(memory.Query{Text: "lovelace"})[0]
	if block.ID != "system/human.md" || block.Label != "human" {
		t.Errorf("block %+v", block)
	}
	if named := x.Search(memory.Query{Text: "kubernetes"})[0]; named.Snippet != "Kubernetes cluster credentials" {
		t.Errorf("snippet %q", named.Snippet)
	}
}

func TestSnippets(t *testing.T) {
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, "Sentence number %d is here to fill the page.\n", i)
	}
	b.WriteString("Then the needle lies beside the haystack.\n")
	for i := range 40 {
		fmt.Fprintf(&b, "Line %d follows it.\n", i)
	}
	b.WriteString("\n# Far away\n\nAnother needle.\n")
	x := memory.NewIndex()
	x.Update(memory.NewSnapshot("c", map[string]string{"long.md": b.String(), "cjk.md": strings.Repeat("无关的文字。", 150) + "针在草堆里。" + strings.Repeat("无关的文字。", 40)}))
	for query, want := range map[string]string{"needle haystack": "the needle lies beside the haystack", "草堆": "针在草堆里"} {
		hits := x.Search(memory.Query{Text: query})
		if len(hits) != 1 {
			t.Fatalf("%q finds %v", query, paths(hits))
		}
		s := hits[0].Snippet
		if n := len([]rune(s)); n > 400 || n < 100 || !strings.Contains(s, want) || strings.Contains(s, "\n") {
			t.Errorf("%q shows %q (%d characters)", query, s, n)
		}
	}
}

// An index that followed many changes answers as one made afresh.
func TestUpdatesAreExact(t *testing.T) {
	x := memory.NewIndex()
	now := map[string]string{}
	for step := range 60 {
		for i := range 40 {
			p := fmt.Sprintf("d%d/f%d.md", i%7, (step*13+i*5)%90)
			switch (step + i) % 5 {
			case 0:
				delete(now, p)
			default:
				now[p] = fmt.Sprintf("---\ntags: [t%d]\n---\nword%d word%d common shared%d\n\n# h%d\n\n%s", i%3, step, i, (step+i)%11, i, strings.Repeat("filler ", step%9))
			}
		}
		s := memory.NewSnapshot(fmt.Sprint("commit", step), now)
		x.Update(s)
		if step%6 != 0 {
			continue
		}
		fresh := memory.NewIndex()
		fresh.Update(s)
		for _, q := range []string{"common", fmt.Sprintf("word%d shared3", step), "shared1 h7", "wrd5 comon", "filler t1"} {
			query := memory.Query{Text: q, TopK: 20}
			if diff := cmp.Diff(fresh.Search(query), x.Search(query)); diff != "" {
				t.Fatalf("step %d, %q: %s", step, q, diff)
			}
		}
	}
}

func TestSearchSeesEveryCommit(t *testing.T) {
	f := setup(t)
	search := func(q string) []string {
		t.Helper()
		found, err := f.Search(t.Context(), id, memory.Query{Text: q})
		if err != nil {
			t.Fatal(err)
		}
		if head, _ := f.Head(id); found.Commit != head || found.Mode != memory.ModeLexical || found.Warning != "" {
			t.Errorf("searched %s in mode %s (%s), head is %s", found.Commit, found.Mode, found.Warning, head)
		}
		for _, h := range found.Hits {
			if h.URI != "letta://agents/"+id+"/memory/"+strings.ReplaceAll(h.Path, " ", "%20") {
				t.Errorf("uri %s", h.URI)
			}
			if time.Since(h.Updated) > time.Hour || time.Since(h.Updated) < -time.Minute {
				t.Errorf("%s was changed at %v", h.Path, h.Updated)
			}
		}
		return paths(found.Hits)
	}
	if got := search("anything"); got != nil {
		t.Errorf("empty memory finds %v", got)
	}
	saved := f.save("The wifi password is swordfish.")
	f.put("a b.md", "an otter")
	if diff := cmp.Diff([]string{saved.Path}, search("what's the wifi password?")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a b.md"}, search("otters")); diff != "" {
		t.Error(diff)
	}
	// A shell's commit.
	f.edit("shell.md", "a walrus")
	f.shell("add", "-A")
	f.shell("commit", "-qm", "by hand")
	if diff := cmp.Diff([]string{"shell.md"}, search("walrus")); diff != "" {
		t.Error(diff)
	}
	if _, err := f.DeleteItem(t.Context(), memory.Author{}, id, saved.ID); err != nil {
		t.Fatal(err)
	}
	if got := search("wifi password"); got != nil {
		t.Errorf("a deleted item is found: %v", got)
	}
	f.reopen()
	if diff := cmp.Diff([]string{"a b.md"}, search("otter")); diff != "" {
		t.Error(diff)
	}
	if err := f.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got := search("otter"); got != nil {
		t.Errorf("a deleted memory finds %v", got)
	}
}

func TestSearchRefuses(t *testing.T) {
	f := setup(t)
	for _, c := range []struct {
		q     memory.Query
		field string
	}{
		{memory.Query{}, "query"},
		{memory.Query{Text: " \n"}, "query"},
		{memory.Query{Text: strings.Repeat("ö", 2001)}, "query"},
		{memory.Query{Text: "x", TopK: 21}, "top_k"},
		{memory.Query{Text: "x", TopK: -1}, "top_k"},
	} {
		_, err := f.Search(t.Context(), id, c.q)
		if e := asError(err); e == nil || e.Code != agent.CodeInvalid || e.Field != c.field {
			t.Errorf("%.20q %d: %v", c.q.Text, c.q.TopK, err)
		}
	}
	if _, err := f.Search(t.Context(), "../x", memory.Query{Text: "x"}); agent.CodeOf(err) != agent.CodeInvalid {
		t.Errorf("agent id: %v", err)
	}
}

// Equal files come newest first, then by path, the same before and after a
// restart.
func TestTies(t *testing.T) {
	f := setup(t)
	for _, p := range []string{"b.md", "a.md"} {
		f.put(p, "same words")
	}
	f.edit("z.md", "same words")
	f.shell("add", "-A")
	f.shell("commit", "-qm", "later")
	for range 2 {
		f.reopen()
		found, err := f.Search(t.Context(), id, memory.Query{Text: "same words"})
		if err != nil {
			t.Fatal(err)
		}
		byTime := slices.IsSortedFunc(found.Hits, func(a, b memory.Hit) int {
			if c := b.Updated.Compare(a.Updated); c != 0 {
				return c
			}
			return strings.Compare(a.Path, b.Path)
		})
		if len(found.Hits) != 3 || !byTime {
			t.Errorf("%+v", found.Hits)
		}
	}
}

// Writers and searchers at the same time: everybody finds what was written
// before the question.
func TestSearchBesideWrites(t *testing.T) {
	f := setup(t)
	f.save("start")
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 5 {
				word := fmt.Sprintf("quux%dx%d", w, i)
				saved, err := f.Save(t.Context(), memory.Author{}, id, memory.Item{Text: "the word " + word})
				if err != nil {
					t.Error(err)
					return
				}
				found, err := f.Search(t.Context(), id, memory.Query{Text: word, TopK: 1})
				if err != nil || len(found.Hits) != 1 || found.Hits[0].ID != saved.ID {
					t.Errorf("%s: %v %v", word, found.Hits, err)
				}
			}
		})
	}
	wg.Wait()
}

// Without any model a thousand items in several languages are found by words, by
// parts of words and by names with hyphens.
func TestManyItems(t *testing.T) {
	f := setup(t)
	people := []string{"Ada Lovelace", "Grace Hopper", "王小明", "田中さくら", "Łukasz Nowak"}
	things := []string{"the build-server restarts nightly", "func parseFrontMatter(text string) splits a file", "她每天早上喝绿茶", "das Frühstück gibt es um acht", "the invoice-archive is on the second shelf"}
	var changes []memory.FileChange
	empty := memory.NewSnapshot("", nil)
	for i := range 1000 {
		text := fmt.Sprintf("%s: %s (note%04d)", people[i%5], things[(i/5)%5], i)
		_, planned, err := memory.Item{Text: text}.Plan(empty, testTime)
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, planned...)
	}
	if _, _, err := f.Write(t.Context(), memory.Author{}, id, changes, "import"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ query, contains string }{
		{"note0123", "note0123"},
		{"Who is Grace?", "Grace Hopper"},
		{"王小明", "王小明"},
		{"早上喝什么茶", "喝绿茶"},
		{"さくら", "田中さくら"},
		{"lukasz", "Łukasz Nowak"},
		{"build-server", "build-server"},
		{"buildserver", "build-server"},
		{"parse front matter", "parseFrontMatter"},
		{"parseFront", "parseFrontMatter"},
		{"Fruehstueck oder fruhstuck", "Frühstück"},
		{"invoice", "invoice-archive"},
		{"archiv", "invoice-archive"},
		{"Hoper", "Hopper"},
	} {
		found, err := f.Search(t.Context(), id, memory.Query{Text: c.query})
		if err != nil || len(found.Hits) == 0 || !strings.Contains(found.Hits[0].Snippet, c.contains) {
			t.Errorf("%q finds %+v, want %q; %v", c.query, found.Hits, c.contains, err)
		}
	}
}

// Files that repeat others are no results of their own.
func TestGeneratedFilesAreNotFound(t *testing.T) {
	x := memory.NewIndex()
	x.Update(memory.NewSnapshot("c", map[string]string{"a.md": "the otter", "system/index.md": "---\ngenerated: true\n---\n- the otter (a.md)"}))
	if diff := cmp.Diff([]string{"a.md"}, paths(x.Search(memory.Query{Text: "otter"}))); diff != "" {
		t.Error(diff)
	}
}
