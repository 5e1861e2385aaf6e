//! Checks that a migration leaves a schema with which the version before works: during an upgrade of several nodes, and
//! after a server of the version before was already started.

use std::collections::BTreeSet;
use std::fs;

use crate::workspace;

/// The last migration of the first release. Until that release, a migration that is added moves it.
const LAST_OF_FIRST_RELEASE: &str = "2026-11-23-180000_storage";

/// Migrations that may break a rule, with the reason why the version before works nevertheless, such as "the column is
/// unused since 0.3.0".
const EXCEPTIONS: &[(&str, &str)] =
    &[("2026-11-28-170000_shapes", "the column whose type it sets is new: that fills it in one pass over the table")];

/// Returns the statements in upper case, without comments and texts, with single spaces.
fn statements(sql: &str) -> Vec<String> {
    let code = sql.lines().map(|line| line.split("--").next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
    let without_texts: String = code.split('\'').step_by(2).collect::<Vec<_>>().join("''");
    let words = |statement: &str| statement.split_whitespace().collect::<Vec<_>>().join(" ").to_uppercase();
    without_texts.split(';').map(words).filter(|statement| !statement.is_empty()).collect()
}

/// Returns the word after `words`.
fn word_after<'a>(statement: &'a str, words: &str) -> Option<&'a str> {
    let rest = statement.split_once(words)?.1.trim_start();
    let rest = ["IF NOT EXISTS ", "IF EXISTS ", "ONLY "].iter().fold(rest, |rest, word| rest.trim_start_matches(word));
    rest.split([' ', '(', ',']).next().filter(|word| !word.is_empty())
}

/// Returns true for `ALTER name TYPE` and `ALTER COLUMN name TYPE`.
fn changes_type(statement: &str) -> bool {
    let words: Vec<&str> = statement.split(' ').collect();
    words.windows(3).any(|words| words[2] == "TYPE" && ["ALTER", "COLUMN"].contains(&words[0]) && words[1] != "COLUMN")
        && statement.contains(" ALTER ")
}

/// Returns what the version before could not do any more after a statement.
fn problem(statement: &str) -> Option<&'static str> {
    let has = |words: &str| format!("{statement} ").contains(words);
    let alters = has("ALTER TABLE ");
    let drops_column = |rest: &str| {
        let what = rest.split(' ').next().unwrap_or_default();
        !["CONSTRAINT", "DEFAULT", "NOT", "EXPRESSION", "IDENTITY"].contains(&what)
    };
    let adds_required = |clause: &str| clause.contains("NOT NULL") && !clause.contains("DEFAULT");
    if has("DROP TABLE ") || (alters && statement.split(" DROP ").skip(1).any(drops_column)) {
        return Some("removes what the version before reads; remove it one release after its last use");
    }
    if ["DROP TYPE ", "DROP FUNCTION ", "DROP VIEW ", "DROP SEQUENCE ", "DROP COLLATION "].iter().any(|what| has(what))
    {
        return Some("removes what the version before uses; remove it one release after its last use");
    }
    if has(" RENAME ") {
        return Some("renames what the version before names; add the new one beside it, and remove the old one later");
    }
    if has(" SET NOT NULL ") || has(" DROP DEFAULT ") || statement.split("ADD COLUMN ").skip(1).any(adds_required) {
        return Some("requires a value that the version before does not write; give it a default");
    }
    if has("ALTER TYPE ") || has(" SET DATA TYPE ") || (alters && changes_type(statement)) {
        return Some("changes a type that the version before reads; add a column of the new type");
    }
    if has(" ADD CONSTRAINT ") || has("CREATE UNIQUE INDEX ") {
        return Some("may refuse what the version before writes; list it with the reason why it does not");
    }
    None
}

/// Returns the problems of a migration.
fn problems(sql: &str) -> Vec<String> {
    let statements = statements(sql);
    let created: BTreeSet<&str> = statements.iter().filter_map(|one| word_after(one, "CREATE TABLE ")).collect();
    let table = |statement: &str| {
        let words = if statement.starts_with("CREATE ") { " ON " } else { "ALTER TABLE " };
        word_after(statement, words).is_some_and(|table| created.contains(table))
    };
    let found = statements.iter().filter(|statement| !table(statement));
    found.filter_map(|statement| Some(format!("`{statement}` {}", problem(statement)?))).collect()
}

#[test]
fn migrations_leave_a_schema_with_which_the_version_before_works() {
    let folder = workspace::root().join("migrations");
    let folders = fs::read_dir(&folder).expect("there are migrations").flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    assert!(names.iter().any(|name| name == LAST_OF_FIRST_RELEASE), "there is no {LAST_OF_FIRST_RELEASE}");
    let mut violations = Vec::new();
    for name in names.iter().filter(|name| name.as_str() > LAST_OF_FIRST_RELEASE) {
        let sql = fs::read_to_string(folder.join(name).join("up.sql")).expect("every migration has an up.sql");
        let (found, is_listed) = (problems(&sql), EXCEPTIONS.iter().any(|(listed, _)| listed == name));
        if is_listed && found.is_empty() {
            violations.push(format!("{name}: needs no exception"));
        } else if !is_listed {
            violations.extend(found.iter().map(|problem| format!("{name}: {problem}")));
        }
    }
    let unknown = EXCEPTIONS.iter().filter(|(listed, _)| !names.iter().any(|name| name == listed));
    violations.extend(unknown.map(|(listed, _)| format!("{listed}: there is no such migration to except")));
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn statements_that_break_the_version_before_are_found() {
    for sql in [
        "DROP TABLE pools;",
        "alter table pools\n  drop column size;",
        "ALTER TABLE pools ADD COLUMN a text, DROP size",
        "ALTER TABLE pools RENAME COLUMN size TO count;",
        "ALTER TABLE pools RENAME TO browser_pools;",
        "ALTER TABLE pools ALTER COLUMN name SET NOT NULL;",
        "ALTER TABLE pools ALTER COLUMN name DROP DEFAULT;",
        "ALTER TABLE pools ADD COLUMN name text NOT NULL;",
        "ALTER TABLE pools ADD COLUMN a int NOT NULL DEFAULT 0, ADD COLUMN b int NOT NULL;",
        "ALTER TABLE pools ALTER COLUMN size TYPE bigint;",
        "ALTER TABLE pools ALTER size TYPE bigint;",
        "ALTER TABLE pools ALTER COLUMN size SET DATA TYPE bigint;",
        "ALTER TYPE mood ADD VALUE 'glad';",
        "ALTER TABLE pools ADD CONSTRAINT pools_size_check CHECK (size > 0);",
        "CREATE UNIQUE INDEX pools_name_key ON pools (name);",
        "SELECT 1; DO $$ BEGIN DROP TABLE pools; END $$;",
        "DROP FUNCTION count_pools();",
    ] {
        assert_eq!(problems(sql).len(), 1, "{sql}");
    }
}

#[test]
fn statements_that_only_add_are_allowed() {
    for sql in [
        "CREATE TABLE moods (id uuid NOT NULL, type text); CREATE UNIQUE INDEX moods_key ON moods (id);",
        "CREATE TABLE moods (id uuid); ALTER TABLE moods ADD CONSTRAINT moods_pkey PRIMARY KEY (id);",
        "ALTER TABLE pools ADD COLUMN mood text, ADD COLUMN type text;",
        "ALTER TABLE pools ADD COLUMN mood text NOT NULL DEFAULT 'glad';",
        "ALTER TABLE pools ALTER COLUMN mood DROP NOT NULL;",
        "ALTER TABLE pools DROP CONSTRAINT pools_mood_check;",
        "CREATE INDEX pools_mood_idx ON pools (mood); DROP INDEX pools_old_idx;",
        "-- Replaces DROP TABLE pools;\nUPDATE pools SET mood = 'DROP TABLE pools; RENAME ';",
    ] {
        assert_eq!(problems(sql), Vec::<String>::new(), "{sql}");
    }
}
