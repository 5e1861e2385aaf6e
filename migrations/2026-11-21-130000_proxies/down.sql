DROP INDEX browser_pools_proxy_id_idx;
ALTER TABLE browsers DROP COLUMN proxy_id;
ALTER TABLE sessions DROP COLUMN proxy_id;
ALTER TABLE browser_pools DROP COLUMN proxy_id;
DROP TABLE proxies;
