"""What a request may say, under the names of every client, and the `GenerationRequest` that it becomes."""
