"""Files of requests: batches of them, their journal, scores, watermarks, workers."""
