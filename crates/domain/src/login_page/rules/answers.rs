//! What a page says to what it was sent: no, wait, go elsewhere.

use super::super::{External, MfaKind, Refusal, RefusalKind, TextKind};
use super::page::{Page, PageText};
use super::words::{self, says};

/// Longest that is repeated of what a page says.
const MAX_COUNT: usize = 300;

/// What the page says was wrong. `fields`: it still asks for something.
pub(super) fn refusal(page: &Page<'_>, fields: bool) -> Option<Refusal> {
    let mut best: Option<(i32, &PageText<'_>, RefusalKind)> = None;
    for said in &page.texts {
        let loud = match said.text.kind {
            TextKind::Alert => 3,
            TextKind::Error => 2,
            TextKind::Heading => 1,
            TextKind::Plain => 0,
        };
        let Some(kind) = kind_of(page, &said.words, loud) else { continue };
        let sure = i32::from(kind != RefusalKind::Other);
        // A plain text is news only where something was sent, and it is short.
        let quiet = loud == 0 && said.text.text.chars().count() > 160;
        if quiet || (fields && !page.known.progress.any()) {
            continue;
        }
        // "There was a problem" says less than what follows it.
        let rate = loud * 4 + sure * 6 + i32::from(wrongs(&said.words));
        if best.as_ref().is_none_or(|(before, ..)| rate > *before) {
            best = Some((rate, said, kind));
        }
    }
    let (_, said, kind) = best?;
    Some(Refusal { website_error: said.text.text.chars().take(MAX_COUNT).collect(), kind })
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
    } else if says(text, words::WRONG) && (loud > 0 || !questions) && (loud > 0 || wrongs(text)) {
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

/// Whether a text that nothing marks is about what was typed: it names it.
fn wrongs(text: &str) -> bool {
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

/// Whether the page waits for a person to do something elsewhere.
pub(super) fn elsewhere(page: &Page<'_>) -> Option<External> {
    let said = |phrases: &[&str]| page.texts.iter().find(|said| says(&said.words, phrases));
    let (first, way) = match (said(words::APPROVE_ELSEWHERE), said(words::LINK_ELSEWHERE)) {
        (Some(push), None) => (push, MfaKind::Push),
        (Some(push), Some(link)) if push.text.place <= link.text.place => (push, MfaKind::Push),
        (_, Some(link)) => (link, MfaKind::Email),
        (None, None) => return None,
    };
    let mut parts: Vec<&str> = Vec::new();
    let near = |said: &&PageText<'_>| {
        said.text.frame == first.text.frame
            && said.text.place.abs_diff(first.text.place) <= 8
            && (says(&said.words, words::APPROVE_ELSEWHERE)
                || says(&said.words, words::LINK_ELSEWHERE)
                || number(&said.text.text)
                || said.text.kind == TextKind::Heading)
    };
    for said in page.texts.iter().filter(near) {
        if parts.len() < 4 && !parts.contains(&said.text.text.as_str()) {
            parts.push(&said.text.text);
        }
    }
    let message: String = parts.join(" ").chars().take(MAX_COUNT).collect();
    Some(External { message, mfa: Some(way), choices: Vec::new() })
}

/// A number to compare.
fn number(text: &str) -> bool {
    (1..=3).contains(&text.trim().len()) && text.trim().bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether it says no more than that it is busy.
pub(super) fn waits(page: &Page<'_>) -> bool {
    let short: usize = page.texts.iter().map(|said| said.text.text.len()).sum();
    short < 200 && (page.texts.is_empty() || page.says(words::WAIT))
}
