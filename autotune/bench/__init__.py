"""Load over HTTP, and the only asynchronous code: requests in, raw records and points out."""
