-- The secret from which all nodes of this database derive their common keys, sealed under a master key. A node that
-- cannot open it has another master key and does not start.
CREATE TABLE shared_secret (
    only_row boolean NOT NULL DEFAULT true CONSTRAINT shared_secret_pkey PRIMARY KEY
        CONSTRAINT shared_secret_only_row_check CHECK (only_row),
    sealed bytea NOT NULL
);
