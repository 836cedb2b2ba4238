"""Write a model's passport: page, JSON, badge and model card."""
