//! Takes parameters out of a connection string: those that the driver does not know, or does not tell whether they were
//! given.

use std::ops::Range;

use percent_encoding::percent_decode_str;

/// The names and values of parameters, in the order of the string.
pub(crate) type Taken = Vec<(String, String)>;

/// Takes parameters out of a connection string. Returns the rest of the string, for the driver. A string that cannot be
/// read is returned as it is: the driver reports why.
pub(crate) fn take(connection: &str, is_taken: impl Fn(&str) -> bool) -> (String, Taken) {
    let is_url = connection.starts_with("postgres://") || connection.starts_with("postgresql://");
    if is_url { split_url(connection, is_taken) } else { split_pairs(connection, is_taken) }
}

/// Splits a URL, with the driver's notion of where its parts begin.
fn split_url(url: &str, is_taken: impl Fn(&str) -> bool) -> (String, Taken) {
    let after_credentials = url.find('@').map_or(0, |at| at + 1);
    let Some(at) = url[after_credentials..].find('?').map(|at| after_credentials + at) else {
        return (url.to_owned(), Vec::new());
    };
    let (mut rest, mut taken) = (Vec::new(), Vec::new());
    for pair in url[at + 1..].split('&') {
        match decoded(pair).filter(|(name, _)| is_taken(name)) {
            Some(found) => taken.push(found),
            None => rest.push(pair),
        }
    }
    let mark = if rest.is_empty() { "" } else { "?" };
    (format!("{}{mark}{}", &url[..at], rest.join("&")), taken)
}

fn decoded(pair: &str) -> Option<(String, String)> {
    let (name, value) = pair.split_once('=')?;
    let decode = |text| percent_decode_str(text).decode_utf8().ok();
    Some((decode(name)?.into_owned(), decode(value)?.into_owned()))
}

/// Splits `key=value` pairs.
fn split_pairs(text: &str, is_taken: impl Fn(&str) -> bool) -> (String, Taken) {
    let (mut rest, mut taken, mut at) = (String::new(), Vec::new(), 0);
    while let Some((name, value, range)) = next_pair(text, at) {
        if is_taken(name) {
            taken.push((name.to_owned(), value));
        } else {
            rest.push_str(&text[range.clone()]);
            rest.push(' ');
        }
        at = range.end;
    }
    rest.push_str(&text[at..]);
    (rest, taken)
}

/// Reads the next pair: its name, its value without quotes, and where it is.
fn next_pair(text: &str, from: usize) -> Option<(&str, String, Range<usize>)> {
    let skip_space = |at: usize| at + text[at..].len() - text[at..].trim_start().len();
    let start = skip_space(from);
    let length = text[start..].find(|c: char| c == '=' || c.is_whitespace())?;
    let sign = skip_space(start + length);
    let mut at = skip_space(sign + text[sign..].strip_prefix('=').map(|_| 1)?);
    let is_quoted = text[at..].starts_with('\'');
    at += usize::from(is_quoted);
    let (mut value, mut is_closed) = (String::new(), !is_quoted);
    let mut letters = text[at..].chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => value.extend(letters.next()),
            '\'' if is_quoted => {
                is_closed = true;
                break;
            }
            _ if !is_quoted && letter.is_whitespace() => break,
            _ => value.push(letter),
        }
    }
    let end = text.len() - letters.as_str().len();
    is_closed.then(|| (&text[start..start + length], value, start..end))
}
