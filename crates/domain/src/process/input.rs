//! Requests that concern programs, and their checks.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::{Exec, Program, Signal, Spawn, TerminalSize};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};
use crate::ids::ProcessId;
use crate::session_operation::OperationError;

/// The maximum length of an argument in bytes, with the terminating NUL, as the kernel limits it.
pub const MAX_WORD: usize = 128 << 10;
/// The maximum number of bytes of command, arguments and environment together; the kernel accepts slightly more.
const MAX_WORDS: usize = 1 << 20;
/// The maximum number of arguments.
pub const MAX_ARGS: usize = 1000;
/// The maximum number of environment variables.
pub const MAX_ENV: usize = 500;
/// The maximum length of a working directory, in bytes.
pub const MAX_PATH: usize = 4096;
/// The maximum size of one write to the standard input, in bytes.
pub const MAX_STDIN: usize = 1 << 20;
const EXEC_SECONDS: i64 = 60;
/// The longest timeout, in seconds.
pub const MAX_SECONDS: u32 = 3600;
const COLS: i64 = 80;
const ROWS: i64 = 24;
/// The maximum width and height of a terminal, in characters.
pub const MAX_SIDE: u32 = 1000;

/// The unchecked description of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramRequest {
    /// The name of the program. Required.
    pub command: Option<String>,
    /// The arguments. Default: `command` is a command line for a shell.
    pub args: Option<Vec<String>>,
    /// The working directory, an absolute path. Default: the home directory of the sandbox's user.
    pub cwd: Option<String>,
    /// The additional environment variables. Default: none.
    pub env: Option<BTreeMap<String, String>>,
    /// Whether to run as root. Not supported, because sandboxes have no root user.
    pub as_root: Option<bool>,
    /// The name of the user. Sandboxes have a single user.
    pub as_user: Option<String>,
}

impl ProgramRequest {
    /// The name of the only user of a sandbox.
    const USER: &'static str = "casement";

    fn parse(self, fields: &mut Fields) -> Option<Program> {
        let command = fields.take_required("command", self.command, |command| {
            if command.is_empty() {
                Err(InvalidValue::new(FieldCode::TooShort, "must not be empty"))
            } else {
                word(command)
            }
        });
        let args = match self.args.map(args) {
            Some(parsed) => fields.take("args", parsed).map(Some),
            None => Some(None),
        };
        let cwd = match self.cwd.map(absolute) {
            Some(parsed) => fields.take("cwd", parsed).map(Some),
            None => Some(None),
        };
        let env = fields.take("env", environment(self.env.unwrap_or_default()));
        let program = Program { command: command?, args: args?, cwd: cwd?, env: env? };
        let words = program.args.iter().flatten().map(String::len).sum::<usize>();
        let env = program.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if program.command.len() + words + env > MAX_WORDS {
            let message = format!("command, arguments and environment must have at most {MAX_WORDS} bytes together");
            fields.refuse("args", InvalidValue::new(FieldCode::TooLong, message));
            return None;
        }
        Some(program)
    }

    fn check_user(&self) -> Result<(), OperationError> {
        if self.as_root == Some(true) {
            return Err(OperationError::NotSupported("as_root: there is no root in a session".to_owned()));
        }
        match self.as_user.as_deref() {
            None | Some(Self::USER) => Ok(()),
            Some(_) => {
                Err(OperationError::NotSupported(format!("as_user: the one user of a session is {}", Self::USER)))
            }
        }
    }
}

impl Exec {
    /// Checks a request to run a program. The timeout is 1 to 3600 seconds, default 60, at most that of the caller.
    ///
    /// # Errors
    /// Returns every field that breaks a rule, or [`OperationError::NotSupported`] for another user than the sandbox's.
    pub fn parse(
        program: ProgramRequest,
        timeout_sec: Option<i64>,
        client_timeout: Option<Duration>,
    ) -> Result<Self, OperationError> {
        let user = program.check_user();
        let mut fields = Fields::new();
        let program = program.parse(&mut fields);
        let seconds = fields.take("timeout_sec", within(timeout_sec.unwrap_or(EXEC_SECONDS), 1, MAX_SECONDS));
        let exec = fields.finish_with(|| {
            let limit = Duration::from_secs(seconds?.into());
            // A caller that times out first would retry and run the program twice.
            let within = client_timeout.map_or(limit, |client_timeout| client_timeout.min(limit));
            Some(Self { program: program?, within })
        })?;
        user.map(|()| exec)
    }
}

impl Spawn {
    /// Checks a request to start a program. The timeout is 1 to 3600 seconds, default none; the sides of the terminal
    /// are 1 to 1000 characters, default 80 columns by 24 rows.
    ///
    /// # Errors
    /// Returns every field that breaks a rule, or [`OperationError::NotSupported`] for another user than the sandbox's.
    pub(super) fn parse(
        id: ProcessId,
        program: ProgramRequest,
        timeout_sec: Option<i64>,
        allocate_tty: bool,
        cols: Option<i64>,
        rows: Option<i64>,
    ) -> Result<Self, OperationError> {
        let user = program.check_user();
        let mut fields = Fields::new();
        let program = program.parse(&mut fields);
        let seconds = fields.take_optional("timeout_sec", timeout_sec, |seconds| within(seconds, 1, MAX_SECONDS));
        let size = size(&mut fields, Some(cols.unwrap_or(COLS)), Some(rows.unwrap_or(ROWS)));
        let within = seconds.map(|seconds| Duration::from_secs(seconds.into()));
        let terminal = size.filter(|_| allocate_tty);
        let spawn = fields.finish_with(|| Some(Self { id, program: program?, terminal, within }))?;
        user.map(|()| spawn)
    }
}

/// Checks that the input of a program has at most 1 MiB.
///
/// # Errors
/// Returns `too_long` for more.
pub fn parse_stdin(data: Vec<u8>) -> Result<Bytes, InvalidValue> {
    if data.len() > MAX_STDIN {
        return Err(InvalidValue::new(FieldCode::TooLong, format!("must hold at most {MAX_STDIN} bytes")));
    }
    Ok(data.into())
}

impl Signal {
    /// Parses the name of a signal.
    ///
    /// # Errors
    /// Returns `not_allowed` for any name but `TERM`, `KILL`, `INT` and `HUP`.
    pub fn parse(name: &str) -> Result<Self, InvalidValue> {
        match name {
            "TERM" => Ok(Self::Term),
            "KILL" => Ok(Self::Kill),
            "INT" => Ok(Self::Int),
            "HUP" => Ok(Self::Hup),
            _ => Err(InvalidValue::new(FieldCode::NotAllowed, "must be TERM, KILL, INT or HUP")),
        }
    }
}

impl TerminalSize {
    /// Checks a size; both sides are required.
    ///
    /// # Errors
    /// Returns the sides that are absent or out of bounds.
    pub fn parse(cols: Option<i64>, rows: Option<i64>) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let size = size(&mut fields, cols, rows);
        fields.finish_with(|| size)
    }
}

fn size(fields: &mut Fields, cols: Option<i64>, rows: Option<i64>) -> Option<TerminalSize> {
    let side = |side| within(side, 1, MAX_SIDE).map(|side| u16::try_from(side).unwrap_or(u16::MAX));
    let cols = fields.take_required("cols", cols, side);
    let rows = fields.take_required("rows", rows, side);
    Some(TerminalSize { cols: cols?, rows: rows? })
}

/// Checks an argument by the rules of the kernel.
fn word(text: String) -> Result<String, InvalidValue> {
    if text.contains('\0') {
        return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold NUL"));
    }
    if text.len() >= MAX_WORD {
        return Err(InvalidValue::new(FieldCode::TooLong, format!("must have less than {MAX_WORD} bytes")));
    }
    Ok(text)
}

fn args(args: Vec<String>) -> Result<Vec<String>, InvalidValue> {
    if args.len() > MAX_ARGS {
        return Err(InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_ARGS} members")));
    }
    args.into_iter().enumerate().map(|(n, arg)| word(arg).map_err(|bad| bad.of(n))).collect()
}

fn absolute(path: String) -> Result<String, InvalidValue> {
    if !path.starts_with('/') {
        return Err(InvalidValue::new(FieldCode::InvalidFormat, "must be an absolute path"));
    }
    if path.len() >= MAX_PATH {
        return Err(InvalidValue::new(FieldCode::TooLong, format!("must have less than {MAX_PATH} bytes")));
    }
    word(path)
}

fn environment(env: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, InvalidValue> {
    if env.len() > MAX_ENV {
        return Err(InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_ENV} members")));
    }
    for (name, value) in &env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(InvalidValue::new(FieldCode::InvalidFormat, "a name must not be empty nor hold = or NUL"));
        }
        let shown: String = name.chars().take(100).collect();
        // The kernel's limit applies to name and value together.
        if name.len() + value.len() + 2 > MAX_WORD {
            return Err(
                InvalidValue::new(FieldCode::TooLong, format!("must have less than {MAX_WORD} bytes")).of(shown)
            );
        }
        if value.contains('\0') {
            return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold NUL").of(shown));
        }
    }
    Ok(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(command: &str) -> ProgramRequest {
        ProgramRequest { command: Some(command.to_owned()), ..ProgramRequest::default() }
    }

    fn refused<T>(result: Result<T, OperationError>) -> Vec<(String, FieldCode)> {
        match result {
            Err(OperationError::Invalid(invalid)) => {
                invalid.fields().iter().map(|error| (error.field.clone(), error.code)).collect()
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("taken"),
        }
    }

    #[test]
    fn a_command_runs_for_a_minute_or_as_long_as_its_caller_waits() {
        let exec = |timeout_sec, client_timeout: Option<u64>| {
            let exec = Exec::parse(program("true"), timeout_sec, client_timeout.map(Duration::from_secs));
            exec.expect("a command").within.as_secs()
        };
        assert_eq!(exec(None, None), 60);
        assert_eq!(exec(Some(3600), Some(58)), 58);
        assert_eq!(exec(Some(5), Some(58)), 5);
    }

    #[test]
    fn every_field_that_breaks_a_rule_is_named() {
        let bad = ProgramRequest {
            command: Some("a\0b".to_owned()),
            args: Some(vec!["ok".to_owned(), "x".repeat(MAX_WORD)]),
            cwd: Some("here".to_owned()),
            env: Some([("A=B".to_owned(), String::new())].into()),
            ..ProgramRequest::default()
        };
        let expected = [
            ("command", FieldCode::InvalidFormat),
            ("args.1", FieldCode::TooLong),
            ("cwd", FieldCode::InvalidFormat),
            ("env", FieldCode::InvalidFormat),
            ("timeout_sec", FieldCode::OutOfRange),
        ];
        assert_eq!(refused(Exec::parse(bad, Some(3601), None)), expected.map(|(field, code)| (field.to_owned(), code)));
        let exec = |program| refused(Exec::parse(program, None, None));
        assert_eq!(exec(ProgramRequest::default()), [("command".to_owned(), FieldCode::Required)]);
        let many = ProgramRequest { args: Some(vec![String::new(); 1001]), ..program("x") };
        assert_eq!(exec(many), [("args".to_owned(), FieldCode::TooMany)]);
        let long = ProgramRequest { args: Some(vec!["x".repeat(100_000); 11]), ..program("x") };
        assert_eq!(exec(long), [("args".to_owned(), FieldCode::TooLong)]);
    }

    #[test]
    fn there_is_one_user() {
        for (as_root, as_user, fine) in [
            (Some(false), None, true),
            (None, Some("casement"), true),
            (Some(true), None, false),
            (None, Some("root"), false),
        ] {
            let program = ProgramRequest { as_root, as_user: as_user.map(str::to_owned), ..program("id") };
            let parsed = Exec::parse(program, None, None);
            assert_eq!(parsed.is_ok(), fine, "{as_root:?} {as_user:?}");
            assert!(fine || matches!(parsed, Err(OperationError::NotSupported(_))));
        }
    }

    #[test]
    fn signals_sizes_and_input_have_their_bounds() {
        assert_eq!(Signal::parse("HUP"), Ok(Signal::Hup));
        assert!(Signal::parse("STOP").is_err() && Signal::parse("term").is_err() && Signal::parse("").is_err());
        assert!(TerminalSize::parse(Some(1000), Some(1)).is_ok());
        for (cols, rows) in [(Some(0), Some(1)), (Some(1001), Some(1)), (Some(1), None)] {
            assert!(TerminalSize::parse(cols, rows).is_err());
        }
        assert_eq!(parse_stdin(b"\0a".to_vec()).expect("bytes"), b"\0a".as_slice());
        assert!(parse_stdin(vec![0; MAX_STDIN + 1]).is_err() && parse_stdin(vec![0; MAX_STDIN]).is_ok());
    }
}
