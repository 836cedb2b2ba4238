"""Canon's Camera Control API over HTTP, as public clients and transcripts show it. No camera was tried."""
