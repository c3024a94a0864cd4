//! A client as a browser is one for the server: cookies, forms, no key.

use super::Server;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Answer to a request.
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A browser of one server.
pub struct Browser {
    address: String,
    /// Cookie of the session.
    pub cookie: String,
}

impl Browser {
    pub fn new(server: &Server) -> Self {
        Self { address: server.url.trim_start_matches("http://").to_owned(), cookie: String::new() }
    }

    /// Signs in with a key.
    pub fn enter(server: &Server, key: &str) -> Self {
        let mut browser = Self::new(server);
        let reply = browser.post("/login", &[("key", key)]);
        assert_eq!(reply.status, 303, "{}", reply.body);
        reply.header("set-cookie").unwrap().split(';').next().unwrap().clone_into(&mut browser.cookie);
        browser
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        if !self.cookie.is_empty() {
            write!(head, "Cookie: {}\r\n", self.cookie).unwrap();
        }
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        write!(head, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[("Accept", "text/html")], "")
    }

    /// Sends a form as a page of the server does.
    pub fn post(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        self.post_from("same-origin", path, fields)
    }

    pub fn post_from(&self, site: &str, path: &str, fields: &[(&str, &str)]) -> Reply {
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        self.send("POST", path, &[kind, ("Sec-Fetch-Site", site)], &form(fields))
    }

    /// Returns the token of the forms of a page.
    pub fn token(&self, path: &str) -> String {
        let page = self.get(path).body;
        let (_, rest) =
            page.split_once("name=\"token\" value=\"").unwrap_or_else(|| panic!("{path} has no form: {page}"));
        rest.split('"').next().unwrap().to_owned()
    }
}

fn form(fields: &[(&str, &str)]) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields);
    form.finish()
}
