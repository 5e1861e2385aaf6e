DROP TRIGGER browser_pools_shape ON browser_pools;
DROP TRIGGER browsers_shape ON browsers;
DROP TRIGGER sessions_shape ON sessions;
DROP FUNCTION keep_shapes_alike();
ALTER TABLE browser_pools DROP COLUMN shape;
ALTER TABLE browsers DROP COLUMN shape;
ALTER TABLE sessions DROP COLUMN shape;
