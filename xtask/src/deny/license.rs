//! Licence expressions of SPDX, as far as packages use them.

/// Returns whether an expression leaves a choice of licences that are all in `allowed`. An expression that cannot be read
/// allows nothing.
pub fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let words = words(expression);
    let mut reader = Reader { words: &words, allowed };
    reader.any().is_some_and(|is_allowed| is_allowed && reader.words.is_empty())
}

/// Splits an expression at spaces and parentheses. Old packages write `/` for OR.
fn words(expression: &str) -> Vec<String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

struct Reader<'a> {
    words: &'a [String],
    allowed: &'a [String],
}

impl Reader<'_> {
    /// Reads `A OR B OR …`.
    fn any(&mut self) -> Option<bool> {
        let mut is_allowed = self.all()?;
        while self.take("OR") {
            is_allowed |= self.all()?;
        }
        Some(is_allowed)
    }

    /// Reads `A AND B AND …`, which binds tighter than OR.
    fn all(&mut self) -> Option<bool> {
        let mut is_allowed = self.one()?;
        while self.take("AND") {
            is_allowed &= self.one()?;
        }
        Some(is_allowed)
    }

    /// Reads one licence, with its exception, or an expression in parentheses.
    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let is_allowed = self.any()?;
            return self.take(")").then_some(is_allowed);
        }
        let mut name = self.name()?;
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.name()?);
        }
        Some(self.allowed.contains(&name))
    }

    fn name(&mut self) -> Option<String> {
        let (first, rest) = self.words.split_first()?;
        let is_name = !matches!(first.as_str(), "(" | ")" | "OR" | "AND" | "WITH");
        self.words = rest;
        is_name.then(|| first.clone())
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.words.first().is_some_and(|first| first == word);
        if is_next {
            self.words = &self.words[1..];
        }
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(expression: &str) -> bool {
        let allowed = ["MIT", "ISC", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        is_allowed(expression, &allowed)
    }

    #[test]
    fn one_allowed_alternative_is_enough() {
        for expression in
            ["MIT", "GPL-3.0-only OR MIT", "Zlib/MIT", "(GPL-3.0-only AND Zlib) OR MIT", "MIT OR Zlib AND GPL-2.0"]
        {
            assert!(allows(expression), "{expression}");
        }
        for expression in ["GPL-3.0-only", "GPL-3.0-only OR Zlib", "Zlib/GPL-2.0"] {
            assert!(!allows(expression), "{expression}");
        }
    }

    #[test]
    fn every_licence_of_a_conjunction_must_be_allowed() {
        assert!(allows("ISC AND (Apache-2.0 OR ISC) AND MIT"));
        assert!(!allows("MIT AND GPL-2.0"));
        assert!(!allows("MIT AND (GPL-2.0 OR Zlib)"));
    }

    #[test]
    fn an_exception_is_part_of_the_licence() {
        assert!(allows("Apache-2.0 WITH LLVM-exception"));
        assert!(!allows("MIT WITH LLVM-exception"));
    }

    #[test]
    fn an_expression_that_cannot_be_read_allows_nothing() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "MIT MIT", "OR MIT", "MIT WITH", "AND", "()"] {
            assert!(!allows(expression), "{expression:?}");
        }
    }
}
