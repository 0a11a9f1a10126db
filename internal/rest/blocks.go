package rest

import (
	"mneme/internal/agent"
)

// A blockState is a memory block as answers show it (spec/rest.md section 12).
type blockState struct {
	ID                  string   `json:"id"`
	Label               string   `json:"label"`
	Value               string   `json:"value"`
	Limit               int      `json:"limit"`
	Description         *string  `json:"description"`
	ReadOnly            bool     `json:"read_only"`
	IsTemplate          bool     `json:"is_template"`
	TemplateName        *string  `json:"template_name"`
	Metadata            object   `json:"metadata"`
	Tags                []string `json:"tags"`
	Hidden              *bool    `json:"hidden"`
	ProjectID           *string  `json:"project_id"`
	TemplateID          *string  `json:"template_id"`
	BaseTemplateID      *string  `json:"base_template_id"`
	DeploymentID        *string  `json:"deployment_id"`
	EntityID            *string  `json:"entity_id"`
	PreserveOnMigration *bool    `json:"preserve_on_migration"`
	CreatedByID         *string  `json:"created_by_id"`
	LastUpdatedByID     *string  `json:"last_updated_by_id"`
}

// renderBlock shows a block.
func renderBlock(b *agent.Block) blockState {
	st := blockState{
		ID: b.ID, Label: b.Label, Value: b.Value, Limit: b.Limit, Description: b.Description, ReadOnly: b.ReadOnly,
		Metadata: object(orObject(b.Metadata)), Tags: orEmpty(b.Tags), Hidden: b.Hidden, PreserveOnMigration: new(false),
	}
	return st
}
