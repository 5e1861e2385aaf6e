//! The reactions of a page to an answer: an error, a wait, or a request for a step elsewhere.

use super::super::{External, MfaKind, Refusal, RefusalKind, TextKind};
use super::page::{Page, PageText};
use super::words::{self, says};

/// The maximum number of characters that are taken from the texts of the page.
const MAX_CHARACTERS: usize = 300;

/// Returns the error that the page shows. `fields`: whether the page still requests values or a choice.
pub(super) fn refusal(page: &Page<'_>, fields: bool) -> Option<Refusal> {
    let mut best: Option<(i32, &PageText<'_>, RefusalKind)> = None;
    for line in &page.texts {
        let loud = match line.text.kind {
            TextKind::Alert => 3,
            TextKind::Error => 2,
            TextKind::Heading => 1,
            TextKind::Plain => 0,
        };
        let Some(kind) = kind_of(page, &line.words, loud) else { continue };
        let specific = i32::from(kind != RefusalKind::Other);
        // A plain text is an error only if it is short, and on a page with a question only after something was sent.
        let quiet = loud == 0 && line.text.text.chars().count() > 160;
        if quiet || (fields && !page.known.progress.any()) {
            continue;
        }
        // A generic text such as "There was a problem" has a lower rank than the specific text that follows.
        let rate = loud * 4 + specific * 6 + i32::from(names_input(&line.words));
        if best.as_ref().is_none_or(|(before, ..)| rate > *before) {
            best = Some((rate, line, kind));
        }
    }
    let (_, line, kind) = best?;
    Some(Refusal { website_error: line.text.text.chars().take(MAX_CHARACTERS).collect(), kind })
}

fn kind_of(page: &Page<'_>, text: &str, loud: i32) -> Option<RefusalKind> {
    let coded = page.known.progress.code && says(text, words::CODE);
    let questions = says(text, words::FORGOT)
        || says(
            text,
            &[
                "don t have an account",
                "no account",
                "new here",
                "noch kein konto",
                "pas de compte",
                "no tienes cuenta",
            ],
        );
    Some(if says(text, words::RATE) {
        RefusalKind::RateLimited
    } else if says(text, words::LOCKED) && (loud > 0 || says(text, &["account", "konto", "compte", "cuenta"])) {
        RefusalKind::Locked
    } else if says(text, words::EXPIRED) && coded {
        RefusalKind::CodeRejected
    } else if says(text, words::SITE_FAILED) {
        RefusalKind::SiteFailed
    } else if says(text, words::WRONG) && (loud > 0 || !questions) && (loud > 0 || names_input(text)) {
        if coded { RefusalKind::CodeRejected } else { RefusalKind::Rejected }
    } else if loud >= 2
        && page.known.progress.any()
        && !says(text, words::WAIT)
        && !says(text, words::COOKIE)
        && text.trim().len() > 3
    {
        if says(text, words::EXPIRED) { RefusalKind::CodeRejected } else { RefusalKind::Other }
    } else {
        return None;
    })
}

/// Returns whether a plain text is about a typed value, because it names one.
fn names_input(text: &str) -> bool {
    let of = [
        words::PASSWORD,
        words::USERNAME,
        words::EMAIL,
        words::CODE,
        words::PHONE,
        &[
            "credentials",
            "zugangsdaten",
            "anmeldedaten",
            "identifiants",
            "credenciales",
            "details",
            "daten",
            "combination",
        ],
    ];
    let soft = ["try again", "please check", "nochmal", "noch einmal", "unknown", "failed"];
    of.iter().any(|phrases| says(text, phrases)) && !words::is(text, &soft)
}

/// Returns the step elsewhere that the page waits for, if any.
pub(super) fn elsewhere(page: &Page<'_>) -> Option<External> {
    let find = |phrases: &[&str]| page.texts.iter().find(|line| says(&line.words, phrases));
    let (first, way) = match (find(words::APPROVE_ELSEWHERE), find(words::LINK_ELSEWHERE)) {
        (Some(push), None) => (push, MfaKind::Push),
        (Some(push), Some(link)) if push.text.place <= link.text.place => (push, MfaKind::Push),
        (_, Some(link)) => (link, MfaKind::Email),
        (None, None) => return None,
    };
    let mut parts: Vec<&str> = Vec::new();
    let near = |line: &&PageText<'_>| {
        line.text.frame == first.text.frame
            && line.text.place.abs_diff(first.text.place) <= 8
            && (says(&line.words, words::APPROVE_ELSEWHERE)
                || says(&line.words, words::LINK_ELSEWHERE)
                || number(&line.text.text)
                || line.text.kind == TextKind::Heading)
    };
    for line in page.texts.iter().filter(near) {
        if parts.len() < 4 && !parts.contains(&line.text.text.as_str()) {
            parts.push(&line.text.text);
        }
    }
    let message: String = parts.join(" ").chars().take(MAX_CHARACTERS).collect();
    Some(External { message, mfa: Some(way), choices: Vec::new() })
}

/// Returns whether the text is a number to compare.
fn number(text: &str) -> bool {
    (1..=3).contains(&text.trim().len()) && text.trim().bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether the page shows only that it is busy.
pub(super) fn waits(page: &Page<'_>) -> bool {
    let short: usize = page.texts.iter().map(|line| line.text.text.len()).sum();
    short < 200 && (page.texts.is_empty() || page.says(words::WAIT))
}
