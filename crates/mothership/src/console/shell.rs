//! The frame of every page, and the headers of every answer.

use super::assets;
use super::html::Html;
use crate::http::{Answer, Problem, bytes_answer};
use axum::http::{HeaderValue, StatusCode, header};
use uuid::Uuid;

/// Scripts, styles and images come from this server; nothing is evaluated, no text becomes a script, no other page frames this one.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Parts of the console that the navigation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Home,
    Directives,
    Approvals,
    Territories,
    Facilities,
    Policies,
    Audit,
    Settings,
    None,
}

const NAVIGATION: &[(Section, &str, &str)] = &[
    (Section::Home, "/", "Home"),
    (Section::Directives, "/directives", "Directives"),
    (Section::Approvals, "/approvals", "Approvals"),
    (Section::Territories, "/territories", "Territories"),
    (Section::Facilities, "/facilities", "Facilities"),
    (Section::Policies, "/policies", "Policies"),
    (Section::Audit, "/audit", "Audit"),
    (Section::Settings, "/settings", "Settings"),
];

/// Colours of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// Those of the browser.
    System,
    Light,
    Dark,
}

impl Theme {
    pub const ALL: [(Self, &'static str, &'static str); 3] =
        [(Self::System, "system", "As the browser"), (Self::Light, "light", "Light"), (Self::Dark, "dark", "Dark")];

    /// Reads the value of a cookie or of a form.
    pub fn read(name: Option<&str>) -> Self {
        Self::ALL.iter().find(|(_, known, _)| Some(*known) == name).map_or(Self::System, |(theme, ..)| *theme)
    }

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(theme, ..)| *theme == self).map_or("system", |(_, name, _)| name)
    }
}

/// The parts of a frame around its page.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    pub title: &'a str,
    pub section: Section,
    pub theme: Theme,
    /// Sentence that stands above every page.
    pub warning: Option<&'static str>,
    /// Number of requests that wait for an answer, where the key may see them.
    pub waiting: Option<usize>,
}

/// Returns a whole page.
pub fn page(status: StatusCode, frame: Frame<'_>, content: impl FnOnce(&mut Html)) -> Answer {
    let mut html = Html::default();
    html.raw("<!doctype html>");
    html.element("html", &[("lang", "en"), ("data-theme", frame.theme.name())], |html| {
        html.element("head", &[], |html| head(html, frame.title));
        html.element("body", &[], |html| {
            html.raw("<a class=\"skip\" href=\"#main\">Skip to the content</a>");
            if frame.section != Section::None {
                html.element("header", &[("class", "top")], |html| navigation(html, frame));
            }
            if let Some(warning) = frame.warning {
                html.leaf("p", &[("class", "warning"), ("role", "note")], warning);
            }
            html.element("main", &[("id", "main"), ("tabindex", "-1")], content);
            if frame.section != Section::None {
                html.raw(HELP);
            }
        });
    });
    fragment(status, html)
}

fn head(html: &mut Html, title: &str) {
    html.raw("<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    html.raw("<meta name=\"color-scheme\" content=\"light dark\">");
    html.leaf("title", &[], &format!("{title} · Nexus"));
    html.open("link", &[("rel", "stylesheet"), ("href", &assets::STYLE.path())]);
    html.open("link", &[("rel", "icon"), ("type", "image/svg+xml"), ("href", &assets::ICON.path())]);
    html.element("script", &[("src", &assets::SCRIPT.path()), ("defer", "")], |_| {});
}

/// The keys of the console. No key answers a request.
const HELP: &str = "<dialog id=\"help\" aria-label=\"Keys\"><dl>\
    <dt><kbd>g</kbd> <kbd>h d a t f p u s</kbd></dt><dd>home, directives, approvals, territories, facilities, policies, audit, settings</dd>\
    <dt><kbd>j</kbd> <kbd>k</kbd> <kbd>Enter</kbd></dt><dd>next row, row before, open it</dd>\
    <dt><kbd>[</kbd> <kbd>]</kbd></dt><dd>view before, next view</dd>\
    <dt><kbd>n</kbd> <kbd>N</kbd></dt><dd>next line found, line before</dd>\
    <dt><kbd>/</kbd></dt><dd>filter or find</dd>\
    <dt><kbd>f</kbd></dt><dd>follow the output</dd>\
    <dt><kbd>a</kbd></dt><dd>what an approval asks for</dd>\
    <dt><kbd>c</kbd></dt><dd>copy the command of the page</dd></dl>\
    <p>No key answers a request.</p><form method=\"dialog\"><button>Close</button></form></dialog>";

fn navigation(html: &mut Html, frame: Frame<'_>) {
    html.raw("<a class=\"brand\" href=\"/\">NEXUS</a>");
    html.element("nav", &[("aria-label", "Parts of the console")], |html| {
        for (known, path, name) in NAVIGATION {
            let here = [("href", *path), ("aria-current", "page")];
            html.element("a", if *known == frame.section { &here } else { &here[..1] }, |html| {
                html.text(name);
                if let (Section::Approvals, Some(waiting)) = (known, frame.waiting) {
                    // Its place is kept, so that nothing moves when a request comes.
                    let count = if waiting > 0 { waiting.to_string() } else { String::new() };
                    html.leaf("span", &[("id", "asks"), ("class", "badge")], &count);
                }
            });
        }
    });
}

/// Returns a piece of a page.
pub fn fragment(status: StatusCode, html: Html) -> Answer {
    bytes_answer(status, "text/html; charset=utf-8", html.into_bytes())
}

/// Returns the page of an error, which says what failed, and how to go on.
pub fn error_page(problem: &Problem, theme: Theme, signed_in: bool) -> Answer {
    let (status, code, error, hint) = problem.facts();
    let section = if signed_in { Section::Home } else { Section::None };
    let frame = Frame { title: "Error", section, theme, warning: None, waiting: None };
    let id = Uuid::now_v7().to_string();
    page(status, frame, |html| {
        html.leaf("h1", &[], if status == StatusCode::NOT_FOUND { "Not found" } else { "This did not work" });
        html.leaf("p", &[("role", "alert")], error);
        if let Some(hint) = hint {
            html.leaf("p", &[], hint);
        }
        html.leaf("p", &[("class", "muted")], &format!("{code}, request {id}"));
        html.raw("<p><a class=\"button\" href=\"/\">Home</a></p>");
    })
}

/// Returns an answer that leads to another page of the console.
pub fn lead_to(path: &str) -> Answer {
    let mut answer = bytes_answer(StatusCode::SEE_OTHER, "text/plain", Vec::new());
    let path = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    answer.headers_mut().insert(header::LOCATION, path);
    answer
}

/// Adds the headers that every answer of the console has.
pub fn guard(answer: &mut Answer) {
    let fixed = [
        ("content-security-policy", POLICY),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
    ];
    for (name, value) in fixed {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
