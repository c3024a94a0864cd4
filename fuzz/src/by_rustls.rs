//! The second reader of a ClientHello.

use rustls::server::Acceptor;

/// What rustls reads: a whole hello with this name (empty if it names none), or nothing.
pub fn by_rustls(data: &[u8]) -> Option<String> {
    let mut acceptor = Acceptor::default();
    let mut rest = data;
    loop {
        match acceptor.accept() {
            Ok(Some(accepted)) => return Some(accepted.client_hello().server_name().unwrap_or_default().to_owned()),
            Ok(None) if rest.is_empty() => return None,
            Ok(None) => {
                acceptor.read_tls(&mut rest).ok()?;
            }
            Err(_) => return None,
        }
    }
}
