package rest_test

import "testing"

// onPostgres begins the names of tests whose servers run on PostgreSQL.
const onPostgres = "TestPostgres/"

// TestPostgres: both databases answer alike. What lists, filters, pages and searches
// runs on the other one, too.
func TestPostgres(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some 15 s")
	}
	for name, test := range map[string]func(*testing.T){
		"agents": TestAgentListFilters, "blocks": TestBlockListFilters, "conversations": TestConversationListFilters,
		"walks": TestWalks, "writers": TestWalksWhileOthersWrite, "deleting": TestDeletingWhatIsListed, "fork": TestFork,
		"agent": TestAgentIsStoredAsGiven, "patch": TestAgentPatch, "block": TestAgentBlocks, "attach": TestAttachAndDetach,
		"text": TestText, "answers": TestAnswersFitTheContract, "messages": TestAnswersAboutMessagesFit, "busy": TestBusyConversation,
	} {
		t.Run(name, test)
	}
}
