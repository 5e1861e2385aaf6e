-- The store of the blobs of this database; there is one row at most. Nodes with another store are refused.
CREATE TABLE blob_stores (
    database_id uuid NOT NULL CONSTRAINT blob_stores_pkey PRIMARY KEY,
    is_only boolean NOT NULL DEFAULT true
        CONSTRAINT blob_stores_is_only_key UNIQUE
        CONSTRAINT blob_stores_is_only_check CHECK (is_only),
    -- The identifier that lies in the store itself; null until a server has started with a store.
    store_id uuid,
    -- Where the store was when it was recorded, for people.
    location text
);
