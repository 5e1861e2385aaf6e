//! Reads links and headings of Markdown pages, as far as the pages of this repository use Markdown.

#[cfg(test)]
use std::collections::{BTreeSet, HashMap};

/// Returns the lines outside of fenced code, each with its number from 1 on.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((index + 1, line))
    })
}

/// Returns the targets of `[text](target)` within the repository, each with the number of its line.
pub(crate) fn links(text: &str) -> impl Iterator<Item = (usize, String)> {
    prose(text).flat_map(|(number, line)| {
        // Every second part is quoted code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let targets = prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
        let inner = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
        inner.map(|target| (number, target)).collect::<Vec<_>>()
    })
}

/// Returns the title of a page: its first heading.
pub(crate) fn title(text: &str) -> Option<&str> {
    prose(text).find_map(|(_, line)| line.strip_prefix("# "))
}

/// Returns the anchors of the headings, as GitHub and mdBook compute them.
#[cfg(test)]
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts = HashMap::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
    });
    let anchor = |title| {
        let base = anchor(title);
        let count = counts.entry(base.clone()).and_modify(|count| *count += 1).or_insert(0);
        if *count == 0 { base } else { format!("{base}-{count}") }
    };
    headings.map(anchor).collect()
}

/// Returns the anchor of a heading: lower case, with `-` for spaces, without punctuation and targets of links.
#[cfg(test)]
fn anchor(title: &str) -> String {
    let mut shown = String::new();
    let mut rest = title.trim();
    while let Some((before, behind)) = rest.split_once("](") {
        shown.push_str(before);
        rest = behind.split_once(')').map_or("", |(_, behind)| behind);
    }
    shown.push_str(rest);
    let letter = |letter: char| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    };
    shown.to_lowercase().chars().filter_map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::{anchors, links};

    #[test]
    fn anchors_are_lower_case_without_punctuation_and_numbered_when_they_repeat() {
        let text =
            "# What `POST /x` does, and why\n\n## A [link](a.md) too\n```sh\n# no heading\n```\n## Why\n### Why\n";

        let expected = ["a-link-too", "what-post-x-does-and-why", "why", "why-1"];
        assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn links_in_code_and_to_other_sites_are_left_out() {
        let text = "[a](a.md#b) `[c](c.md)`\n[d](https://d.example)\n```\n[e](e.md)\n```\n[f](#g)\n";

        let found: Vec<_> = links(text).collect();
        assert_eq!(found, [(1, "a.md#b".to_owned()), (6, "#g".to_owned())]);
    }
}
