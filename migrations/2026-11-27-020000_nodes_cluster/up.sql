-- The number rises with each start of the node, and when the node is lost. Only the run with the present number acts for
-- the node.
ALTER TABLE nodes ADD COLUMN epoch bigint NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN state text NOT NULL DEFAULT 'serving'
    CHECK (state IN ('serving', 'draining', 'drained'));
-- The address at which other nodes reach this one, as host:port. Null: other nodes do not reach it.
ALTER TABLE nodes ADD COLUMN cluster_address text;
-- The SHA-256 checksum of the public key of the node (SubjectPublicKeyInfo).
ALTER TABLE nodes ADD COLUMN fingerprint bytea CHECK (octet_length(fingerprint) = 32);
-- The number of sessions for which the node has room. Null: unknown.
ALTER TABLE nodes ADD COLUMN max_sessions integer CHECK (max_sessions >= 0);
ALTER TABLE nodes ADD COLUMN memory_mib bigint CHECK (memory_mib >= 0);
ALTER TABLE nodes ADD COLUMN labels jsonb NOT NULL DEFAULT '{}';
ALTER TABLE nodes ADD COLUMN version text NOT NULL DEFAULT '';
