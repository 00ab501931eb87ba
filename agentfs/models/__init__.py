"""Language models: nobody else speaks to one. `base` says what a model is, `line` what a conversation is."""
