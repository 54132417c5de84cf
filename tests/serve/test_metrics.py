"""The numbers for Prometheus, read with Prometheus' own parser."""

from prometheus_client.parser import text_string_to_metric_families

from .gen_serve import post_bytes


def numbers(server):
    """Return the samples of `/metrics` by name and labels."""
    status, headers, text = server.request("GET", "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def difference(server, requests):
    """Return the numbers that changed while requests were answered, each with its change."""
    server.wait_until_no_text_runs()
    before = numbers(server)
    for body in requests:
        server.post("/v1/completions", body)
    return {key: value - before.get(key, 0) for key, value in numbers(server).items() if value != before.get(key)}


def test_requests_and_tokens_are_counted_per_route(server):
    body = {"prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": True, "n": 2}
    found = difference(server, [body, body, {"prompt": "a", "top_p": 2}])
    route = ("route", "/v1/completions")
    assert found["gen_requests_total", route, ("status", "200")] == 2
    assert found["gen_requests_total", route, ("status", "400")] == 1
    assert found["gen_prompt_tokens_total", route] == 2 * 2 * 3
    assert found["gen_completion_tokens_total", route] == 2 * 2 * 4
    # The second request finds its prompt in the slots of the first.
    read_count = found["gen_prompt_tokens_total", route] - found["gen_cached_prompt_tokens_total", route]
    assert 3 <= read_count <= 2 * 3
    assert found["llamacpp:prompt_tokens_total",] == read_count
    assert found["llamacpp:tokens_predicted_total",] == 2 * 2 * 4
    assert found["gen_first_token_seconds_count", route] == 2
    assert found["gen_request_seconds_count", route] == 3
    assert found["gen_request_seconds_sum", route] >= found["gen_first_token_seconds_sum", route] > 0


def test_unknown_paths_share_one_label(server):
    before = numbers(server)
    for path in ("/nothing", "/v1/nothing", "/x%00"):
        assert server.request("GET", path)[0] in (400, 404)
    found = numbers(server)
    routes = {value for key in found for name, value in key[1:] if name == "route"}
    assert "other" in routes
    assert not any("nothing" in route for route in routes)
    key = ("gen_requests_total", ("route", "other"), ("status", "404"))
    assert found[key] - before.get(key, 0) >= 2


def test_each_route_has_numbers_of_its_own(server):
    for path in ("/completion", "/api/v1/generate"):
        server.post(path, {"prompt": "The sea", "n_predict": 2, "max_length": 2})
        assert numbers(server)["gen_first_token_seconds_count", ("route", path)] >= 1


def test_slots_and_queue(server):
    server.wait_until_no_text_runs()
    assert numbers(server)[("gen_slots",)] == 4
    connections = [server.start_stream(n=4), server.connect()]
    try:
        connections[1].sendall(post_bytes({"prompt": "The sea", "max_tokens": 1}))
        found = next(found for found in polled(server) if found[("gen_texts_waiting",)])
        assert found[("gen_texts_waiting",)] == 1
        assert found[("gen_texts_running",)] == found[("llamacpp:requests_processing",)] == 4
        assert found[("llamacpp:requests_deferred",)] == 1
    finally:
        for connection in connections:
            connection.close()
    server.wait_until_idle()
    assert numbers(server)[("gen_texts_waiting",)] == 0


def polled(server):
    """Yield the samples again and again, until all slots are free."""
    found = numbers(server)
    while found[("gen_texts_running",)]:
        yield found
        found = numbers(server)
