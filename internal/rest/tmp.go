package rest

func (d *Door) knowsTool(string) bool                   { return true }
func (d *Door) namesOfTools([]string) ([]string, error) { return nil, nil }
func (d *Door) toolStates([]string) []toolState         { return []toolState{} }

var baseTools = []string{"conversation_search", "memory_insert", "memory_replace"}
