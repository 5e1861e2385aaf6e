//! Parses the header `Range` (RFC 9110 §14).

use actix_web::http::header::{self, HeaderMap};
use casement_domain::replay::Part;

/// Returns the part that the headers request of the video with this entity tag. Returns `None` for the whole video,
/// also if the range is malformed, there are several ranges, or `If-Range` names another tag.
pub(super) fn requested_part(headers: &HeaderMap, tag: &str) -> Option<Part> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if text(header::IF_RANGE).is_some_and(|known| known != tag) {
        return None;
    }
    let (first, last) = text(header::RANGE)?.trim().strip_prefix("bytes=")?.split_once('-')?;
    match (first.trim(), last.trim()) {
        ("", last) => number(last).map(Part::Last),
        (first, "") => number(first).map(|first| Part::From(first, None)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Part::From(first, Some(last)))
        }
    }
}

fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number that overflows is beyond the end of every video.
    plain.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn of(range: &str, if_range: Option<&str>) -> Option<Part> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_str(range).expect("a value"));
        if let Some(tag) = if_range {
            headers.insert(header::IF_RANGE, HeaderValue::from_str(tag).expect("a value"));
        }
        requested_part(&headers, "\"x\"")
    }

    #[test]
    fn one_part_is_taken_and_anything_else_means_all() {
        assert_eq!(of("bytes=0-9", None), Some(Part::From(0, Some(9))));
        assert_eq!(of("bytes=5-", Some("\"x\"")), Some(Part::From(5, None)));
        assert_eq!(of("bytes=-7", None), Some(Part::Last(7)));
        assert_eq!(of("bytes=99999999999999999999-", None), Some(Part::From(u64::MAX, None)));
        for all in ["bytes=0-1,4-5", "bytes=5-4", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=+1-2", ""] {
            assert_eq!(of(all, None), None, "{all}");
        }
        assert_eq!(of("bytes=5-", Some("\"y\"")), None);
        assert_eq!(requested_part(&HeaderMap::new(), "\"x\""), None);
    }
}
