//! `nexus image`: imports images, lists, shows and removes them.

pub mod args;

use crate::args::RunArgs;
use crate::failure::{Failure, one_line};
use crate::failures;
use crate::terminal::out;
use args::{ImageArgs, ImageCommand};
use nexus_image::{HeldRoot, Image, ImageError, Imported, Limits, Progress, Settings, Store, import};
use nexus_model::plan::ImageRoot;
use nexus_runner::request::RunImage;
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

/// Does it and returns the exit code.
pub fn command(args: &ImageArgs) -> u8 {
    let json = args.command.json();
    let written = done(&args.command).and_then(|(mut document, text)| {
        document["schema"] = "nexus.image/1".into();
        let text = if json { format!("{document:#}\n") } else { text };
        out::write_unless_closed(&mut std::io::stdout(), text.as_bytes())
            .map_err(|error| failures::not_written("the answer", &error))
    });
    match written {
        Ok(()) => 0,
        Err(failure) => failures::print_failure(&failure, json),
    }
}

/// Opens the store of this user.
fn store() -> Result<Store, Failure> {
    let places = crate::host::ready_state_dir()?;
    Store::open(&places.state).map_err(|error| failed(&error))
}

/// The image of a run, resolved once, and held until the run is over.
pub struct ImageOfRun {
    /// Root, digest and variables for the engine.
    pub run: RunImage,
    /// Suggestions of the image for its use.
    pub settings: Settings,
    /// Keeps the root from being removed.
    pub held: HeldRoot,
}

/// Resolves the image that a command line names.
pub fn of_run(args: &RunArgs, state: &Path) -> Result<Option<ImageOfRun>, Failure> {
    let Some(reference) = &args.image else { return Ok(None) };
    let resolved = || {
        if !Store::is_there(state) {
            return Err(ImageError::Unknown { reference: reference.clone() });
        }
        let store = Store::open(state)?;
        let image = store.find(reference)?;
        let (settings, held) = (store.settings(&image)?, store.hold(&image)?);
        let variables = settings.variables().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        // The plan has the real path: no link on it is followed later.
        let path = std::fs::canonicalize(held.path()).map_err(|source| ImageError::Io {
            doing: "find",
            path: held.path().to_owned(),
            source,
        })?;
        let root = ImageRoot { path: path.into(), digest: image.digest.to_string() };
        Ok(ImageOfRun { run: RunImage { root, reference: reference.clone(), variables }, settings, held })
    };
    resolved().map(Some).map_err(|error| failed(&error))
}

/// Gives an error of the store its advice.
fn failed(error: &ImageError) -> Failure {
    let hint = match error {
        ImageError::Unknown { .. } => {
            "nexus image ls lists the images, and nexus image import takes one from an archive"
        }
        ImageError::Ambiguous { .. } => "Write more digits; nexus image ls --json has all of them.",
        ImageError::DigestMismatch { .. } | ImageError::SizeMismatch { .. } | ImageError::Layer { .. } => {
            "The archive is damaged or was changed: make or fetch it again; nothing of it is used."
        }
        ImageError::Busy => "Try again when the other import has ended.",
        ImageError::Several { .. } => "Save one image alone, for example by docker save NAME.",
        ImageError::NotAnImage { .. } => "Such an archive comes from docker save, skopeo copy or buildah push.",
        ImageError::EntryPath { .. } | ImageError::Bomb { .. } => {
            "Nothing of the image is used; ask where it comes from."
        }
        _ => "",
    };
    Failure::refused(error.code(), one_line(&error.to_string()), hint)
}

fn done(command: &ImageCommand) -> Result<(Value, String), Failure> {
    let store = store()?;
    let done = match command {
        ImageCommand::Import { path, name, .. } => {
            let imported = imported(&store, path, name.as_deref())?;
            let image = &imported.image;
            let mut document = document(image);
            document["new_root"] = imported.is_new_root.into();
            return Ok((document, import_text(&imported)));
        }
        ImageCommand::Ls { .. } => store.images().map(|images| {
            let all: Vec<Value> = images.iter().map(document).collect();
            let lines = images.iter().map(line).collect::<String>();
            let text = if lines.is_empty() { "There is no image.\n".to_owned() } else { lines };
            (json!({"images": all}), text)
        }),
        ImageCommand::Show { image, .. } => store.find(image).and_then(|image| {
            let (settings, layers) = (store.settings(&image)?, store.layers(&image)?);
            let mut document = document(&image);
            document["settings"] = json!(settings);
            document["layers"] =
                layers.iter().map(|(digest, bytes)| json!({"digest": digest.to_string(), "bytes": bytes})).collect();
            let mut lines = vec![line(&image)];
            for (name, value) in [
                ("command", settings.command().join(" ")),
                ("workdir", settings.working_dir.clone()),
                ("user", settings.user.clone()),
                ("env", settings.env.join(" ")),
            ] {
                if !value.is_empty() {
                    lines.push(format!("  {name:8} {}\n", one_line(&value)));
                }
            }
            lines.extend(layers.iter().map(|(digest, bytes)| format!("  layer    {digest} {bytes} bytes\n")));
            Ok((document, lines.concat()))
        }),
        ImageCommand::Rm { image, .. } => store.remove(image).map(|(removed, is_gone)| {
            let text = if is_gone {
                format!("{} is removed; nexus image gc frees its space\n", removed.digest)
            } else {
                format!("{} has lost the name {}\n", removed.digest, one_line(image))
            };
            (json!({"digest": removed.digest.to_string(), "removed": is_gone}), text)
        }),
        ImageCommand::Gc { .. } => store.collect().map(|removed| {
            let text = format!(
                "Removed {} roots, {} blobs and {} unfinished imports; {} roots are in use.\n",
                removed.roots, removed.blobs, removed.leftovers, removed.roots_in_use
            );
            (json!(removed), text)
        }),
    };
    done.map_err(|error| failed(&error))
}

fn imported(store: &Store, path: &Path, name: Option<&str>) -> Result<Imported, Failure> {
    let mut terminal = std::io::stderr();
    let shows = terminal.is_terminal();
    // Progress is worth nothing where it cannot be written.
    let mut write = |text: &str| drop(terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush()));
    let mut progress = |progress: Progress| {
        let text = match progress {
            Progress::Copy { layer, of } => format!("\r\x1b[Knexus: copying layer {layer} of {of}"),
            Progress::Unpack { layer, of } => format!("\r\x1b[Knexus: unpacking layer {layer} of {of}"),
        };
        if shows {
            write(&text);
        }
    };
    let done = import(store, path, name, &Limits::default(), &mut progress);
    if shows {
        write("\r\x1b[K");
    }
    done.map_err(|error| failed(&error))
}

fn import_text(imported: &Imported) -> String {
    let unpacked = imported.image.unpacked;
    let mut lines = vec![line(&imported.image)];
    for (count, what) in [
        (unpacked.skipped_special, "device nodes, FIFOs or other special files were left out"),
        (unpacked.stripped_bits, "files lost their setuid or setgid bit"),
    ] {
        if count > 0 {
            lines.push(format!("  {count} {what}\n"));
        }
    }
    lines.concat()
}

fn line(image: &Image) -> String {
    let names = if image.names.is_empty() { "-".to_owned() } else { image.names.join(" ") };
    format!("{} {names} ({}, {} entries)\n", image.digest, image.platform, image.unpacked.entries)
}

fn document(image: &Image) -> Value {
    json!(image)
}
