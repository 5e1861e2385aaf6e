//! Checks the identifiers of all sources: no retired words, and no codes in names of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use proc_macro2::{TokenStream, TokenTree};

use crate::workspace;

/// The list of retired words: one `word: replacement` per line.
const RETIRED_WORDS: &str = "docs/retired-words.txt";
const MAX_TEST_NAME: usize = 80;
/// The file with the columns of the database as identifiers. A column has its name until a migration renames it.
const SCHEMA: &str = "crates/postgres/src/schema.rs";

/// Checks every source file of the workspace.
///
/// # Errors
/// If there are violations, with their list, or if a file cannot be read or parsed.
pub(crate) fn check() -> Result<()> {
    let list = fs::read_to_string(workspace::root().join(RETIRED_WORDS)).context(RETIRED_WORDS)?;
    let retired = parse_list(&list)?;
    let columns = columns()?;
    let repositories = workspace::root().join("crates/postgres/src");
    let mut violations = Vec::new();
    for path in workspace::sources() {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let allowed = if path.starts_with(&repositories) { Some(&columns) } else { None };
        violations.extend(violations_of(&path, &text, &retired, allowed)?);
    }
    if !violations.is_empty() {
        bail!("{} names break the vocabulary:\n{}", violations.len(), violations.join("\n"));
    }
    Ok(())
}

fn columns() -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(workspace::root().join(SCHEMA)).context(SCHEMA)?;
    let mut names = Names::default();
    names.collect(text.parse().map_err(|error| anyhow::anyhow!("{SCHEMA}: {error}"))?);
    Ok(names.identifiers)
}

fn parse_list(list: &str) -> Result<BTreeMap<&str, &str>> {
    let entries = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    entries
        .map(|line| {
            line.split_once(": ").with_context(|| format!("{RETIRED_WORDS}: {line:?} is not `word: replacement`"))
        })
        .collect()
}

fn violations_of(
    path: &Path,
    text: &str,
    retired: &BTreeMap<&str, &str>,
    allowed: Option<&BTreeSet<String>>,
) -> Result<Vec<String>> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    let mut names = Names::default();
    names.collect(tokens);
    let place = path.strip_prefix(workspace::root()).unwrap_or(path).display().to_string();
    let mut violations = Vec::new();
    for name in names.identifiers.iter().filter(|name| !allowed.is_some_and(|allowed| allowed.contains(*name))) {
        for word in words(name) {
            let singular = word.strip_suffix('s').unwrap_or(&word);
            if let Some(replacement) = retired.get(word.as_str()).or_else(|| retired.get(singular)) {
                violations.push(format!("{place}: `{name}`: `{word}` is retired, use {replacement}"));
            }
        }
    }
    violations
        .extend(names.tests.iter().filter_map(|name| test_name_violation(name)).map(|why| format!("{place}: {why}")));
    Ok(violations)
}

/// The identifiers of a file, and the names of its test functions.
#[derive(Default)]
struct Names {
    identifiers: BTreeSet<String>,
    tests: Vec<String>,
}

impl Names {
    fn collect(&mut self, tokens: TokenStream) {
        let (mut after_test, mut after_fn) = (false, false);
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    let attribute = group.stream().to_string().replace(' ', "");
                    after_test |= matches!(attribute.as_str(), "test" | "tokio::test" | "actix_web::test")
                        || attribute.starts_with("tokio::test(");
                    self.collect(group.stream());
                }
                TokenTree::Ident(name) => {
                    let name = name.to_string();
                    if after_fn && after_test {
                        self.tests.push(name.clone());
                        after_test = false;
                    }
                    after_fn = name == "fn";
                    self.identifiers.insert(name);
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

fn test_name_violation(name: &str) -> Option<String> {
    if name.len() > MAX_TEST_NAME {
        return Some(format!("test `{name}` has {} characters, more than {MAX_TEST_NAME}", name.len()));
    }
    let first = name.split('_').next().unwrap_or_default();
    let is_code = first.len() >= 2 && first.len() <= 3 && first[1..].bytes().all(|byte| byte.is_ascii_digit());
    is_code.then(|| format!("test `{name}` begins with a code, not with its subject"))
}

/// Splits an identifier into its words, in lower case: `PoolBell2` and `pool_bell2` are `pool`, `bell2`.
fn words(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous_is_lower = false;
    for letter in identifier.chars() {
        if letter == '_' || (letter.is_uppercase() && previous_is_lower) {
            words.push(String::new());
        }
        previous_is_lower = letter.is_lowercase();
        if letter != '_' {
            words.last_mut().expect("never empty").extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<String> {
        let retired = parse_list("bell: waker\nheard: notification\n").expect("a list");
        violations_of(Path::new("a.rs"), source, &retired, None).expect("Rust")
    }

    #[test]
    fn retired_words_are_found_in_every_kind_of_identifier() {
        for source in
            ["struct PoolBell;", "const MAX_BELLS: u8 = 1;", "fn f(heard: u8) {}", "mod m { fn bell_rings() {} }"]
        {
            assert_eq!(found(source).len(), 1, "{source}");
        }
    }

    #[test]
    fn retired_words_in_comments_strings_and_longer_words_are_not_found() {
        assert_eq!(found("// bell\nfn f() { g(\"bell\", bellow); }"), Vec::<String>::new());
    }

    #[test]
    fn test_names_have_no_codes_and_at_most_80_characters() {
        assert_eq!(found("#[test] fn e1_e2_isolation() {}").len(), 1);
        assert_eq!(found("#[tokio::test(flavor = \"current_thread\")] async fn b12_x() {}").len(), 1);
        assert_eq!(found(&format!("#[test] fn {}() {{}}", "a".repeat(81))).len(), 1);
        assert_eq!(found(&format!("#[test] fn {}() {{}}\nfn h1_x() {{}}", "a".repeat(80))), Vec::<String>::new());
    }

    #[test]
    fn the_list_beside_the_glossary_is_read() {
        let list = fs::read_to_string(workspace::root().join(RETIRED_WORDS)).expect("a list");
        assert_eq!(parse_list(&list).expect("a list").get("bell"), Some(&"waker"));
    }
}
