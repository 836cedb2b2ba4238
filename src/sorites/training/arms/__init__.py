"""Arms: trainings by one recipe that differ in the augmentation alone, each with several seeds, compared picture by picture."""
