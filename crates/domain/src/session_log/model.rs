//! The kinds of logs and their lines.

use time::OffsetDateTime;

use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue};

/// A log to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowLog {
    /// The source of the lines.
    pub source: LogSource,
    /// Whether to continue with new lines as they are written.
    pub follow: bool,
}

/// The source of log lines.
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
    /// The time of reading.
    pub read_at: OffsetDateTime,
    /// The text of the line. It is not trusted.
    pub message: String,
}

impl FollowLog {
    /// The maximum length of a path in bytes, with the terminating NUL.
    pub const MAX_PATH: usize = 4096;

    /// Checks a request: the source `path` needs an absolute `path`, the source `supervisor` needs
    /// `supervisor_process`, one of `chromium`, `display` and `agent`. What the source does not need is checked too.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn parse(
        source: Option<&str>,
        path: Option<String>,
        supervisor_process: Option<&str>,
        follow: bool,
    ) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let (has_path, has_process) = (path.is_some(), supervisor_process.is_some());
        let path = fields.take_optional("path", path, Self::path);
        let process = fields.take_optional("supervisor_process", supervisor_process, Self::supervisor);
        let needed = |fields: &mut Fields, name: &str, is_given: bool, value: Option<LogSource>| {
            if !is_given {
                fields.refuse(name, InvalidValue::new(FieldCode::Required, "is required"));
            }
            value
        };
        let source = match source {
            Some("path") => needed(&mut fields, "path", has_path, path),
            Some("supervisor") => needed(&mut fields, "supervisor_process", has_process, process),
            Some(_) => {
                fields.take("source", Err(InvalidValue::new(FieldCode::NotAllowed, "must be path or supervisor")))
            }
            None => fields.take("source", Err(InvalidValue::new(FieldCode::Required, "is required"))),
        };
        fields.finish_with(|| Some(Self { source: source?, follow }))
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

    fn supervisor(process: &str) -> Result<LogSource, InvalidValue> {
        match process {
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
        let log = FollowLog::parse(Some(source), path.map(str::to_owned), process, true);
        log.map_err(|bad| bad.fields().iter().map(|error| error.field.clone()).collect())
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
        assert_eq!(parse("supervisor", Some("a"), Some("display")), refused("path"));
        assert_eq!(parse("journal", None, None), refused("source"));
        assert!(FollowLog::parse(None, None, None, true).is_err());
    }
}
