//! The text of an error with its causes, each said once: many errors name their cause in their own text.

use std::error::Error;

/// Returns the error with its causes. Leaves out a cause that the text before it contains.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    join(error.chain())
}

fn join<'e>(chain: impl Iterator<Item = &'e (dyn Error + 'static)>) -> String {
    let mut text = String::new();
    for cause in chain.map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context as _;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("opening /x: {source}")]
    struct Opening {
        source: io::Error,
    }

    #[test]
    fn a_cause_that_an_error_names_itself_appears_once() {
        let error = Opening { source: io::Error::other("it is not a file of its own") };
        let error = Err::<(), _>(error).context("no database").expect_err("an error");
        assert_eq!(with_causes(&error), "no database: opening /x: it is not a file of its own");
        let error = anyhow::anyhow!("one").context("two");
        assert_eq!(with_causes(&error), "two: one");
    }
}
