//! How long a session lives that was made by a connection, between nodes.

use std::{fmt, str::FromStr, time::Duration};

/// How long a session lives that was made by a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// Whether it lives on without connections.
    pub(crate) keep: bool,
    /// The bound of its whole duration.
    pub(crate) max_duration: Option<Duration>,
}

impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.keep { "keep" } else { "end" })?;
        self.max_duration.map_or(Ok(()), |bound| write!(f, ";{}", bound.as_millis()))
    }
}

impl FromStr for Lifetime {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, bound) = text.split_once(';').map_or((text, None), |(kind, bound)| (kind, Some(bound)));
        let keep = match kind {
            "keep" => true,
            "end" => false,
            _ => return Err(()),
        };
        let bound = bound.map(|bound| bound.parse().map(Duration::from_millis)).transpose().map_err(|_| ())?;
        Ok(Self { keep, max_duration: bound })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_read_as_it_was_written() {
        for keep in [true, false] {
            for max_duration in [None, Some(Duration::from_millis(1500))] {
                let lifetime = Lifetime { keep, max_duration };
                assert_eq!(lifetime.to_string().parse(), Ok(lifetime));
            }
        }
        for text in ["", "keep;", "end;x", "other", "keep;-1"] {
            assert_eq!(text.parse::<Lifetime>(), Err(()), "{text}");
        }
    }
}
