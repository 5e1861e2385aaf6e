//! The kinds of logs and their lines.

use time::OffsetDateTime;

use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue};

/// A log as it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowInput {
    /// Required: `path` or `supervisor`.
    pub source: Option<String>,
    /// With `path`: an absolute path.
    pub path: Option<String>,
    /// With `supervisor`: `chromium`, `display` or `agent`.
    pub supervisor_process: Option<String>,
    /// Default: true.
    pub follow: Option<bool>,
}

/// A log to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowLog {
    /// Which.
    pub source: LogSource,
    /// Go on with what is added.
    pub follow: bool,
}

/// Where lines come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogSource {
    /// A regular file of the session, by its absolute path.
    Path(String),
    /// The browser.
    Chromium,
    /// The X server.
    Display,
    /// The agent.
    Agent,
}

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When it was read.
    pub read_at: OffsetDateTime,
    /// What it says. Whoever wrote it may have been hostile.
    pub message: String,
}

impl FollowInput {
    const MAX_PATH: usize = 4096;

    /// # Errors
    /// Every field that breaks a rule.
    pub fn parse(self) -> Result<FollowLog, InvalidInput> {
        let mut fields = Fields::new();
        let Self { source, path, supervisor_process, follow } = self;
        let source = match source.as_deref() {
            Some("path") => fields.take_required("path", path, Self::path),
            Some("supervisor") => fields.take_required("supervisor_process", supervisor_process, Self::supervisor),
            Some(_) => {
                fields.take("source", Err(InvalidValue::new(FieldCode::NotAllowed, "must be path or supervisor")))
            }
            None => fields.take("source", Err(InvalidValue::new(FieldCode::Required, "is required"))),
        };
        fields.finish()?;
        let source = source.unwrap_or_else(|| unreachable!("a refused field is an error"));
        Ok(FollowLog { source, follow: follow.unwrap_or(true) })
    }

    fn path(path: String) -> Result<LogSource, InvalidValue> {
        if !path.starts_with('/') || path.contains('\0') {
            return Err(InvalidValue::new(FieldCode::InvalidFormat, "must be an absolute path without NUL"));
        }
        if path.len() >= Self::MAX_PATH {
            return Err(InvalidValue::new(FieldCode::TooLong, format!("must have less than {} bytes", Self::MAX_PATH)));
        }
        Ok(LogSource::Path(path))
    }

    fn supervisor(process: String) -> Result<LogSource, InvalidValue> {
        match process.as_str() {
            "chromium" => Ok(LogSource::Chromium),
            "display" => Ok(LogSource::Display),
            "agent" => Ok(LogSource::Agent),
            _ => Err(InvalidValue::new(FieldCode::NotAllowed, "must be chromium, display or agent")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(source: &str, path: Option<&str>, process: Option<&str>) -> Result<FollowLog, Vec<String>> {
        let input = FollowInput {
            source: Some(source.to_owned()),
            path: path.map(str::to_owned),
            supervisor_process: process.map(str::to_owned),
            follow: None,
        };
        input.parse().map_err(|bad| bad.fields().iter().map(|error| error.field.clone()).collect())
    }

    #[test]
    fn each_source_needs_its_own_field() {
        let log = |source| Ok(FollowLog { source, follow: true });
        assert_eq!(parse("path", Some("/a"), None), log(LogSource::Path("/a".to_owned())));
        assert_eq!(parse("supervisor", None, Some("display")), log(LogSource::Display));
        let refused = |field: &str| Err(vec![field.to_owned()]);
        assert_eq!(parse("path", None, Some("display")), refused("path"));
        assert_eq!(parse("path", Some("a"), None), refused("path"));
        assert_eq!(parse("path", Some("/a\0"), None), refused("path"));
        assert_eq!(parse("supervisor", Some("/a"), None), refused("supervisor_process"));
        assert_eq!(parse("supervisor", None, Some("sshd")), refused("supervisor_process"));
        assert_eq!(parse("journal", None, None), refused("source"));
        assert!(FollowInput::default().parse().is_err());
    }
}
