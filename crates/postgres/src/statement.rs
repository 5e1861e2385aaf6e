//! Statements in files of their own.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::AstPass;

/// A long statement from a file, without its comments, split at its parameters. It is split once, since diesel walks a
/// statement three times per query.
pub(crate) struct Statement {
    head: String,
    /// Each parameter with the text that follows it.
    rest: Vec<(&'static str, String)>,
}

impl Statement {
    pub(crate) fn cut(text: &'static str) -> Self {
        let mut statement = Self { head: String::new(), rest: Vec::new() };
        for line in text.lines().filter(|line| !line.starts_with("--")) {
            let mut pieces = line.split('$');
            statement.last().push_str(pieces.next().unwrap_or_default());
            for piece in pieces {
                let end = piece.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(piece.len());
                let (name, after) = piece.split_at(end);
                statement.rest.push((name, after.to_owned()));
            }
            statement.last().push('\n');
        }
        statement
    }

    fn last(&mut self) -> &mut String {
        self.rest.last_mut().map_or(&mut self.head, |(_, after)| after)
    }

    /// Writes the statement. Diesel numbers the parameters itself, in order of appearance; `bind` writes one for each
    /// `$n`, or several for a `$name`.
    pub(crate) fn walk<'a, 'b>(
        &self,
        mut out: AstPass<'a, 'b, Pg>,
        bind: impl Fn(&mut AstPass<'a, 'b, Pg>, &str) -> QueryResult<()>,
    ) -> QueryResult<()> {
        out.push_sql(&self.head);
        for (name, after) in &self.rest {
            bind(&mut out, name)?;
            out.push_sql(after);
        }
        Ok(())
    }
}
