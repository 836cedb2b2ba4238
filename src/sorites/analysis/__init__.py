"""What is computed from finished runs: filters, comparisons, features, passports."""
