"""How far a picture has moved: the split of meaning from appearance, distances to the familiar, and levels of them."""
