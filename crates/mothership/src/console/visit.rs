//! A request of a browser whose session and form were checked.

use super::html::Html;
use super::session;
use super::shell::{Frame, Section, Theme};
use crate::config::TerritoryAuth;
use crate::http::{Context, Problem};
use crate::store::types::{Account, SecretHash};
use nexus_api::routes::{Access, find};

/// A request with its session.
pub struct Visit {
    pub context: Context,
    pub account: Account,
    pub session: SecretHash,
    /// Fields of the form.
    pub form: Vec<(String, String)>,
    pub theme: Theme,
    /// Number of requests that wait for an answer, where the key may see them.
    pub waiting: Option<usize>,
}

impl Visit {
    /// Returns a field of the form.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.form.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether the role of the session may call an operation of the API.
    pub fn may(&self, operation: &str) -> bool {
        find(operation).is_some_and(|route| match route.access {
            Access::Roles(roles) => roles.contains(&self.account.role),
            _ => false,
        })
    }

    /// Refuses what the role of the session may not call.
    pub fn demand(&self, operation: &str) -> Result<(), Problem> {
        if self.may(operation) { Ok(()) } else { Err(Problem::forbidden("The role of your key does not allow this.")) }
    }

    /// Writes the beginning of a form that changes something.
    pub fn form(&self, html: &mut Html, action: &str, class: &'static str) -> Result<(), Problem> {
        let token = session::form_token(&self.context.app, &self.session)?;
        html.open("form", &[("method", "post"), ("action", action), ("class", class)]);
        html.open("input", &[("type", "hidden"), ("name", "token"), ("value", &token)]);
        Ok(())
    }

    /// Returns the frame of a page.
    pub fn frame<'a>(&self, title: &'a str, section: Section) -> Frame<'a> {
        let open = self.context.app.config.territory_auth == TerritoryAuth::Header;
        let warning = open.then_some(
            "Territories prove nothing here: any program that reaches this server can be one. For development only.",
        );
        Frame { title, section, theme: self.theme, warning, waiting: self.waiting }
    }

    pub fn now(&self) -> i64 {
        self.context.app.now()
    }
}
