-- $1 project, $2 organization whose profiles without a project are listed too, or null, $3 name, $4 part of name or id,
-- $5 limit, $6 offset.
-- Each half reads its index only up to the limit. With a name, the project's profile hides the one without a project.
WITH own AS (
    SELECT * FROM profiles p
    WHERE p.project_id = $1 AND p.deleted_at IS NULL
        AND ($3 IS NULL OR p.name = $3)
        AND ($4 IS NULL OR strpos(lower(coalesce(p.name, '') COLLATE "und-x-icu"), lower($4 COLLATE "und-x-icu")) > 0
            OR strpos(p.id_text, lower($4)) > 0)
    ORDER BY p.created_at DESC, p.id DESC LIMIT $5 + $6
), legacy AS (
    SELECT * FROM profiles p
    WHERE p.organization_id = $2 AND p.project_id IS NULL AND p.deleted_at IS NULL
        AND ($3 IS NULL OR (p.name = $3 AND NOT EXISTS (SELECT 1 FROM own)))
        AND ($4 IS NULL OR strpos(lower(coalesce(p.name, '') COLLATE "und-x-icu"), lower($4 COLLATE "und-x-icu")) > 0
            OR strpos(p.id_text, lower($4)) > 0)
    ORDER BY p.created_at DESC, p.id DESC LIMIT $5 + $6
)
SELECT id, organization_id, project_id, name, version_id, created_at, updated_at, last_used_at
FROM (SELECT * FROM own UNION ALL SELECT * FROM legacy) found
ORDER BY created_at DESC, id DESC LIMIT $5 OFFSET $6
