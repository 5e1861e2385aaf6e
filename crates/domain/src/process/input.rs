//! The inputs of callers, unchecked, and their checks.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::{Exec, Program, Signal, Spawn, TerminalSize};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};
use crate::ids::ProcessId;
use crate::session_operation::OperationError;

/// The kernel takes no longer word than this, its end included.
const MAX_WORD: usize = 128 << 10;
/// All words together; the kernel takes a little more.
const MAX_WORDS: usize = 1 << 20;
const MAX_ARGS: usize = 1000;
const MAX_ENV: usize = 500;
const MAX_PATH: usize = 4096;
const MAX_STDIN: usize = 1 << 20;
const EXEC_SECONDS: i64 = 60;
const MAX_SECONDS: u32 = 3600;
const COLS: i64 = 80;
const ROWS: i64 = 24;
const MAX_SIDE: u32 = 1000;

/// A program as it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramInput {
    /// Required.
    pub command: Option<String>,
    /// Default: the command is a line for a shell.
    pub args: Option<Vec<String>>,
    /// Absolute. Default: the home of the sandbox's user.
    pub cwd: Option<String>,
    /// Default: none.
    pub env: Option<BTreeMap<String, String>>,
    /// There is no root in a sandbox.
    pub as_root: Option<bool>,
    /// There is one user in a sandbox.
    pub as_user: Option<String>,
}

/// A program to wait for, as it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecInput {
    /// What to run.
    pub program: ProgramInput,
    /// 1 to 3600; default: 60.
    pub timeout_sec: Option<i64>,
    /// How long the caller itself waits.
    pub client_timeout: Option<Duration>,
}

/// A program to start, as it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpawnInput {
    /// What to run.
    pub program: ProgramInput,
    /// 1 to 3600; default: never.
    pub timeout_sec: Option<i64>,
    /// Default: false.
    pub allocate_tty: Option<bool>,
    /// 1 to 1000; default: 80.
    pub cols: Option<i64>,
    /// 1 to 1000; default: 24.
    pub rows: Option<i64>,
}

/// Bytes for a program, as they came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StdinInput {
    /// Required; in base64, at most 1 MiB of bytes.
    pub data_b64: Option<String>,
}

/// A signal, as it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KillInput {
    /// Required: `TERM`, `KILL`, `INT` or `HUP`.
    pub signal: Option<String>,
}

/// A size, as it came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResizeInput {
    /// Required; 1 to 1000.
    pub cols: Option<i64>,
    /// Required; 1 to 1000.
    pub rows: Option<i64>,
}

impl ProgramInput {
    /// The name of the one user of a sandbox.
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

    fn user(&self) -> Result<(), OperationError> {
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

impl ExecInput {
    /// # Errors
    /// Every field that breaks a rule, or another user.
    pub fn parse(self) -> Result<Exec, OperationError> {
        let user = self.program.user();
        let mut fields = Fields::new();
        let program = self.program.parse(&mut fields);
        let seconds = fields.take("timeout_sec", within(self.timeout_sec.unwrap_or(EXEC_SECONDS), 1, MAX_SECONDS));
        fields.finish()?;
        user?;
        let (Some(program), Some(seconds)) = (program, seconds) else { unreachable!("refused fields are errors") };
        let limit = Duration::from_secs(seconds.into());
        // A caller that gives up first would run it again.
        Ok(Exec { program, within: self.client_timeout.map_or(limit, |client_timeout| client_timeout.min(limit)) })
    }
}

impl SpawnInput {
    /// The program to start, under a new id.
    ///
    /// # Errors
    /// Every field that breaks a rule, or another user.
    pub fn parse(self, id: ProcessId) -> Result<Spawn, OperationError> {
        let user = self.program.user();
        let mut fields = Fields::new();
        let program = self.program.parse(&mut fields);
        let seconds = fields.take_optional("timeout_sec", self.timeout_sec, |seconds| within(seconds, 1, MAX_SECONDS));
        let size = size(&mut fields, Some(self.cols.unwrap_or(COLS)), Some(self.rows.unwrap_or(ROWS)));
        fields.finish()?;
        user?;
        let Some(program) = program else { unreachable!("refused fields are errors") };
        let terminal = size.filter(|_| self.allocate_tty == Some(true));
        Ok(Spawn { id, program, terminal, within: seconds.map(|seconds| Duration::from_secs(seconds.into())) })
    }
}

impl StdinInput {
    /// # Errors
    /// No base64, or too much.
    pub fn parse(self) -> Result<Bytes, InvalidInput> {
        let mut fields = Fields::new();
        let data = fields.take_required("data_b64", self.data_b64, |text| {
            let bad = |_| InvalidValue::new(FieldCode::InvalidFormat, "must be base64");
            let data = STANDARD.decode(text).map_err(bad)?;
            match data.len() {
                length if length > MAX_STDIN => {
                    Err(InvalidValue::new(FieldCode::TooLong, format!("must hold at most {MAX_STDIN} bytes")))
                }
                _ => Ok(data),
            }
        });
        fields.finish()?;
        Ok(data.unwrap_or_default().into())
    }
}

impl KillInput {
    /// # Errors
    /// No signal, or another.
    pub fn parse(self) -> Result<Signal, InvalidInput> {
        let mut fields = Fields::new();
        let signal = fields.take_required("signal", self.signal, |signal| match signal.as_str() {
            "TERM" => Ok(Signal::Term),
            "KILL" => Ok(Signal::Kill),
            "INT" => Ok(Signal::Int),
            "HUP" => Ok(Signal::Hup),
            _ => Err(InvalidValue::new(FieldCode::NotAllowed, "must be TERM, KILL, INT or HUP")),
        });
        fields.finish()?;
        Ok(signal.unwrap_or_else(|| unreachable!("a refused field is an error")))
    }
}

impl ResizeInput {
    /// # Errors
    /// A side that is missing or leaves its bounds.
    pub fn parse(self) -> Result<TerminalSize, InvalidInput> {
        let mut fields = Fields::new();
        let size = size(&mut fields, self.cols, self.rows);
        fields.finish()?;
        Ok(size.unwrap_or_else(|| unreachable!("a refused field is an error")))
    }
}

fn size(fields: &mut Fields, cols: Option<i64>, rows: Option<i64>) -> Option<TerminalSize> {
    let side = |side| within(side, 1, MAX_SIDE).map(|side| u16::try_from(side).unwrap_or(u16::MAX));
    let cols = fields.take_required("cols", cols, side);
    let rows = fields.take_required("rows", rows, side);
    Some(TerminalSize { cols: cols?, rows: rows? })
}

/// A word that the kernel takes.
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
        // The kernel's bound holds for both together.
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

    fn program(command: &str) -> ProgramInput {
        ProgramInput { command: Some(command.to_owned()), ..ProgramInput::default() }
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
            let input = ExecInput {
                program: program("true"),
                timeout_sec,
                client_timeout: client_timeout.map(Duration::from_secs),
            };
            input.parse().expect("a command").within.as_secs()
        };
        assert_eq!(exec(None, None), 60);
        assert_eq!(exec(Some(3600), Some(58)), 58);
        assert_eq!(exec(Some(5), Some(58)), 5);
    }

    #[test]
    fn every_field_that_breaks_a_rule_is_named() {
        let input = ExecInput {
            program: ProgramInput {
                command: Some("a\0b".to_owned()),
                args: Some(vec!["ok".to_owned(), "x".repeat(MAX_WORD)]),
                cwd: Some("here".to_owned()),
                env: Some([("A=B".to_owned(), String::new())].into()),
                ..ProgramInput::default()
            },
            timeout_sec: Some(3601),
            client_timeout: None,
        };
        let expected = [
            ("command", FieldCode::InvalidFormat),
            ("args.1", FieldCode::TooLong),
            ("cwd", FieldCode::InvalidFormat),
            ("env", FieldCode::InvalidFormat),
            ("timeout_sec", FieldCode::OutOfRange),
        ];
        assert_eq!(refused(input.parse()), expected.map(|(field, code)| (field.to_owned(), code)));
        assert_eq!(refused(ExecInput::default().parse()), [("command".to_owned(), FieldCode::Required)]);
        let many = ExecInput {
            program: ProgramInput { args: Some(vec![String::new(); 1001]), ..program("x") },
            ..ExecInput::default()
        };
        assert_eq!(refused(many.parse()), [("args".to_owned(), FieldCode::TooMany)]);
        let long = ExecInput {
            program: ProgramInput { args: Some(vec!["x".repeat(100_000); 11]), ..program("x") },
            ..ExecInput::default()
        };
        assert_eq!(refused(long.parse()), [("args".to_owned(), FieldCode::TooLong)]);
    }

    #[test]
    fn there_is_one_user() {
        for (as_root, as_user, fine) in [
            (Some(false), None, true),
            (None, Some("casement"), true),
            (Some(true), None, false),
            (None, Some("root"), false),
        ] {
            let program = ProgramInput { as_root, as_user: as_user.map(str::to_owned), ..program("id") };
            let parsed = ExecInput { program, ..ExecInput::default() }.parse();
            assert_eq!(parsed.is_ok(), fine, "{as_root:?} {as_user:?}");
            assert!(fine || matches!(parsed, Err(OperationError::NotSupported(_))));
        }
    }

    #[test]
    fn signals_sizes_and_input_have_their_bounds() {
        let kill = |signal: &str| KillInput { signal: Some(signal.to_owned()) }.parse();
        assert_eq!(kill("HUP"), Ok(Signal::Hup));
        assert!(kill("STOP").is_err() && kill("term").is_err() && KillInput::default().parse().is_err());
        assert!(ResizeInput { cols: Some(1000), rows: Some(1) }.parse().is_ok());
        for (cols, rows) in [(Some(0), Some(1)), (Some(1001), Some(1)), (Some(1), None)] {
            assert!(ResizeInput { cols, rows }.parse().is_err());
        }
        let stdin = |data: &str| StdinInput { data_b64: Some(data.to_owned()) }.parse();
        assert_eq!(stdin("AGE=").expect("bytes"), b"\0a".as_slice());
        assert!(stdin("%").is_err() && stdin(&STANDARD.encode(vec![0; MAX_STDIN + 1])).is_err());
        assert!(stdin(&STANDARD.encode(vec![0; MAX_STDIN])).is_ok());
    }
}
