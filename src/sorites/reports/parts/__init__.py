"""What sections are made of: markup, charts, dots, heat maps. A part registers nothing and asks no metric on its own."""
