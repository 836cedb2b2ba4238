"""Canon's Camera Control API over HTTP, as public clients and transcripts show it. It has not been tried on a real camera."""
