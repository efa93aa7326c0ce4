canopy bench: '/work/demo/models/SmolLM2-135M-Instruct.Q4_1.gguf' belongs to no flag, and the model is given already; a text of several words needs quotes
Try 'canopy bench --help'.
