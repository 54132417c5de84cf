CREATE TABLE message (
    number INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    parent INTEGER REFERENCES message (number),
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    created REAL NOT NULL
) STRICT;
CREATE INDEX message_parent ON message (parent);
CREATE TABLE conversation (
    id TEXT PRIMARY KEY,
    name TEXT UNIQUE,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    head INTEGER REFERENCES message (number),
    settings TEXT NOT NULL
) STRICT;
CREATE TABLE conversation_message (
    conversation TEXT NOT NULL REFERENCES conversation (id),
    message INTEGER NOT NULL REFERENCES message (number),
    number INTEGER PRIMARY KEY,
    UNIQUE (conversation, message)
) STRICT;
CREATE INDEX conversation_of_message ON conversation_message (message);
CREATE TABLE answer (
    number INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL REFERENCES conversation (id),
    parent INTEGER NOT NULL REFERENCES message (number),
    message INTEGER REFERENCES message (number),
    writer TEXT NOT NULL,
    updated REAL NOT NULL,
    recipe TEXT NOT NULL,
    prompt_ids BLOB NOT NULL,
    beginning TEXT NOT NULL,
    content TEXT NOT NULL,
    token_ids BLOB NOT NULL,
    result TEXT
) STRICT;
CREATE INDEX answer_conversation ON answer (conversation);
CREATE INDEX answer_message ON answer (message);
INSERT INTO message VALUES (1, 'dc1dfd4009871b5a4779acb4c871d4e549e83187d35c2c0adec05e0ad5c30fcc', NULL, 'system', 'Be brief.', 1795546288.7723567);
INSERT INTO message VALUES (2, '2b719c501ba6013220cdd2cce6a895b64caff5204a089ee8224ef236feecc98c', 1, 'user', 'Hello', 1795546288.7726352);
INSERT INTO message VALUES (3, 'a1e8912b29412bea0b3cd4bbfd736d49484dcfe1e9f1713745a5af48bc1d7dcb', 2, 'assistant', '�)<', 1795546288.9085941);
INSERT INTO message VALUES (4, '6279f598b551350c984204abefe0d80afb3e4233ae9968f7e5f744193391779e', 2, 'assistant', 'O��n_', 1795546288.9193277);
INSERT INTO message VALUES (5, '09cc9916cc53137adae97035d59f4b648d719e4c2c88a8c8573b3425ae3c2faa', 4, 'user', 'And 今天?', 1795546288.9248588);
INSERT INTO message VALUES (6, '56941d55ef271a8aec632f4c6c4abd50579df04c93709c9387827ca9a809ce11', 5, 'assistant', 'Well,#� �', 1795546288.9335985);
INSERT INTO message VALUES (7, '3a283fc4e140ea28e4c493082a8760a5585bdf32f08c377288322043c9df98f8', 5, 'assistant', '�4', 1795546288.94109);
INSERT INTO message VALUES (8, '77ac68883218404441ba531f0c6864685830a0d5e93280500a70666d5e54b4e0', 4, 'user', 'And then?', 1795546288.9488504);
INSERT INTO message VALUES (9, 'd5234205bf831380113af96106965a6495c445573da93f3e5ace386cb96b03a9', 3, 'user', 'Go on', 1795546288.9648302);
INSERT INTO conversation VALUES ('2a0df234e3ea', 'tea', 1795546288.772278, 1795546288.9489088, 8, '{"seed": 1, "chain": [{"temperature": {"temperature": 0.8}}]}');
INSERT INTO conversation VALUES ('33c3bf7987ec', NULL, 1795546288.9528499, 1795546288.9648838, 9, '{}');
INSERT INTO conversation_message VALUES ('2a0df234e3ea', 1, 1);
INSERT INTO conversation_message VALUES ('2a0df234e3ea', 2, 2);
INSERT INTO conversation_message VALUES ('2a0df234e3ea', 3, 3);
INSERT INTO conversation_message VALUES ('2a0df234e3ea', 4, 4);
INSERT INTO conversation_message VALUES ('2a0df234e3ea', 5, 5);
INSERT INTO conversation_message VALUES ('2a0df234e3ea', 6, 6);
INSERT INTO conversation_message VALUES ('2a0df234e3ea', 7, 7);
INSERT INTO conversation_message VALUES ('2a0df234e3ea', 8, 8);
INSERT INTO conversation_message VALUES ('33c3bf7987ec', 1, 9);
INSERT INTO conversation_message VALUES ('33c3bf7987ec', 2, 10);
INSERT INTO conversation_message VALUES ('33c3bf7987ec', 3, 11);
INSERT INTO conversation_message VALUES ('33c3bf7987ec', 9, 12);
INSERT INTO answer VALUES (1, '2a0df234e3ea', 2, 3, 'a machine:2', 1795546288.9128323, '{"model": {"name": "small.gguf", "path": "/models/small.gguf", "fingerprint": "062e132dcf9a5e7a28498c0a536df04b24d03d714aaca07331db10074ce7abc4", "lora": [], "overrides": {}, "gpu_layers": 0, "batch": 128, "threads": 1, "compute": {}}, "chain": [{"temperature": {"t": 0.8}}, {"dist": {}}], "seed": 1, "grammar": null, "stop": [], "max_tokens": 5, "versions": {"logitsmith": "0.1.0", "llama-cpp-python": "0.3.36"}, "dropped": 0, "options": {"complete_sentence": false, "jump": true, "lookup": 0}}', X'780135cdbb0d80300c4551d33205133004153b441420814401487c0ab6e75ec91447cf496ca744c48537f326676c18d0e5b921279c5861cf8216350a1eb8cb37fb9ceff35c551107f5df3b52db2bf799feedfd9eb5f31fad8f0e96', '', '�)<', X'780163656460f8c4c0c0a009c4ac40b60d90060012b60164', '{"finish_reason": "length", "stop": null, "complete": null, "usage": {"prompt_tokens": 40, "cached_tokens": 0, "completion_tokens": 5}, "timings": {"prompt": 0.0019952409966208506, "generation": 0.0021973359980620444, "chain": 0.0006187880026118364, "grammar": 0.0}}');
INSERT INTO answer VALUES (2, '2a0df234e3ea', 2, 4, 'a machine:2', 1795546288.9194412, '{"model": {"name": "small.gguf", "path": "/models/small.gguf", "fingerprint": "062e132dcf9a5e7a28498c0a536df04b24d03d714aaca07331db10074ce7abc4", "lora": [], "overrides": {}, "gpu_layers": 0, "batch": 128, "threads": 1, "compute": {}}, "chain": [{"temperature": {"t": 0.8}}, {"dist": {}}], "seed": 2, "grammar": null, "stop": [], "max_tokens": 5, "versions": {"logitsmith": "0.1.0", "llama-cpp-python": "0.3.36"}, "dropped": 0, "options": {"complete_sentence": false, "jump": true, "lookup": 0}}', X'780135cdbb0d80300c4551d33205133004153b441420814401487c0ab6e75ec91447cf496ca744c48537f326676c18d0e5b921279c5861cf8216350a1eb8cb37fb9ceff35c551107f5df3b52db2bf799feedfd9eb5f31fad8f0e96', '', 'O��n_', X'7801f3676060f80cc45f80380f88e381180025cc0304', '{"finish_reason": "length", "stop": null, "complete": null, "usage": {"prompt_tokens": 40, "cached_tokens": 40, "completion_tokens": 5}, "timings": {"prompt": 1.4896999346092343e-05, "generation": 0.0014864180011500139, "chain": 0.00048122899897862226, "grammar": 0.0}}');
INSERT INTO answer VALUES (3, '2a0df234e3ea', 5, 6, 'a machine:2', 1795546288.9337034, '{"model": {"name": "small.gguf", "path": "/models/small.gguf", "fingerprint": "062e132dcf9a5e7a28498c0a536df04b24d03d714aaca07331db10074ce7abc4", "lora": [], "overrides": {}, "gpu_layers": 0, "batch": 128, "threads": 1, "compute": {}}, "chain": [{"temperature": {"t": 0.8}}, {"dist": {}}], "seed": 3, "grammar": null, "stop": [], "max_tokens": 4, "versions": {"logitsmith": "0.1.0", "llama-cpp-python": "0.3.36"}, "dropped": 0, "options": {"complete_sentence": false, "jump": true, "lookup": 0}}', X'78018dcf310e823014c6f1d7d553f400862b1898d81c1d88311a24615012c4c12b780e16ce400c97d1d92bf8ff9276210e0cbfbc57faf595166676c323d48e7ac6057b6461eda927b4a8a14c85042b14b843b3b4a79ccee761ed9c59431fb3477a6545f35475b7be5f43aff35b7c31e135eb953b20cefc777fcabe72253cde18f1c4073d066c10e72cfdb71d67f456bd6d4dfd0108c4225c', 'Well,', 'Well,#� �', X'780153666060780ac40a403c138801106001c2', '{"finish_reason": "length", "stop": null, "complete": null, "usage": {"prompt_tokens": 83, "cached_tokens": 0, "completion_tokens": 4}, "timings": {"prompt": 0.001894289001938887, "generation": 0.0014276889996835962, "chain": 0.00037529900146182626, "grammar": 0.0}}');
INSERT INTO answer VALUES (4, '2a0df234e3ea', 5, 7, 'a machine:2', 1795546288.9411752, '{"model": {"name": "small.gguf", "path": "/models/small.gguf", "fingerprint": "062e132dcf9a5e7a28498c0a536df04b24d03d714aaca07331db10074ce7abc4", "lora": [], "overrides": {}, "gpu_layers": 0, "batch": 128, "threads": 1, "compute": {}}, "chain": [{"temperature": {"t": 0.8}}, {"dist": {}}], "seed": 4, "grammar": null, "stop": [], "max_tokens": 9, "versions": {"logitsmith": "0.1.0", "llama-cpp-python": "0.3.36"}, "dropped": 0, "options": {"complete_sentence": false, "jump": true, "lookup": 0}}', X'78018dceb10d83301085e1a3cd149e801550a8e81800452811205140a400052b648e3499218ab20cd4ac90ff497613a5a0f87467fbf9ecc2cc06ccbe8ed41a1d4e48fdda512fb8a185320d621c50608266e94c39ddcffc3a8accaef4217ba65756344f556f6bbff7bdeee7d8f0c1fba757ae4498f9effd23e7ca557058f0c21d2b1e78224198b3f76f5fe68c2172', '', '�4', X'7801fbc4c0c06002c4cf81180010a0020e', '{"finish_reason": "interrupted"}');
INSERT INTO answer VALUES (5, '33c3bf7987ec', 2, 3, 'a machine:2', 1795546288.9603412, '{"model": {"name": "small.gguf", "path": "/models/small.gguf", "fingerprint": "062e132dcf9a5e7a28498c0a536df04b24d03d714aaca07331db10074ce7abc4", "lora": [], "overrides": {}, "gpu_layers": 0, "batch": 128, "threads": 1, "compute": {}}, "chain": [{"temperature": {"t": 0.8}}, {"dist": {}}], "seed": 1, "grammar": null, "stop": [], "max_tokens": 5, "versions": {"logitsmith": "0.1.0", "llama-cpp-python": "0.3.36"}, "dropped": 0, "options": {"complete_sentence": false, "jump": true, "lookup": 0}}', X'780135cdbb0d80300c4551d33205133004153b441420814401487c0ab6e75ec91447cf496ca744c48537f326676c18d0e5b921279c5861cf8216350a1eb8cb37fb9ceff35c551107f5df3b52db2bf799feedfd9eb5f31fad8f0e96', '', '�)<', X'780163656460f8c4c0c0a009c4ac40b60d90060012b60164', '{"finish_reason": "length", "stop": null, "complete": null, "usage": {"prompt_tokens": 40, "cached_tokens": 0, "completion_tokens": 5}, "timings": {"prompt": 0.001275096001336351, "generation": 0.00127792899729684, "chain": 0.00039268300315598026, "grammar": 0.0}}');
INSERT INTO answer VALUES (6, '33c3bf7987ec', 9, NULL, 'a machine:1', 1795542688.9689906, '{"model": {"name": "small.gguf"}, "chain": [], "seed": 5, "grammar": null, "stop": [], "max_tokens": null, "versions": {}, "dropped": 0, "options": {}}', X'7801636460606002626620060000340007', '', 'And so', X'780163676060e000620000600010', NULL);
CREATE VIRTUAL TABLE message_text USING fts5 (
    content, content='message', content_rowid='number', tokenize='trigram'
);
INSERT INTO message_text (message_text) VALUES ('rebuild');
CREATE TRIGGER message_inserted AFTER INSERT ON message BEGIN
    INSERT INTO message_text (rowid, content) VALUES (new.number, new.content);
END;
CREATE TRIGGER message_deleted AFTER DELETE ON message BEGIN
    INSERT INTO message_text (message_text, rowid, content) VALUES ('delete', old.number, old.content);
END;
PRAGMA application_id = 1734700643;
PRAGMA user_version = 3;
