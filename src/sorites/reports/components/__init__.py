"""The parts that sections are made of: markup, charts, dots, heat maps. A part registers nothing."""
