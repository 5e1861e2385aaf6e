DROP TABLE browser_pools;
