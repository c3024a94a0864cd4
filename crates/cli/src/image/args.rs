//! The command line of `nexus image`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Arguments of `nexus image`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  docker save debian:13 > debian.tar; nexus image import debian.tar
  nexus image import --name tools root.tar.gz
  nexus run --image tools -- make test")]
pub struct ImageArgs {
    #[command(subcommand)]
    /// Command about images.
    pub command: ImageCommand,
}

/// Commands about images.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Take an image from an OCI layout, an archive of one, an archive of docker save, or an archive of a root
    Import {
        /// Directory or archive
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// Name of the image, in place of the one in the archive
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// List the images, the last import first
    Ls {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show an image and what it says about its use
    Show {
        /// Name or digest
        #[arg(value_name = "IMAGE")]
        image: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Take a name away; the last name, or a digest, takes the image along
    Rm {
        /// Name or digest
        #[arg(value_name = "IMAGE")]
        image: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Remove what no image needs, and what killed imports left
    Gc {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

impl ImageCommand {
    /// Reports whether the answer is a document.
    pub fn json(&self) -> bool {
        match self {
            Self::Import { json, .. }
            | Self::Ls { json }
            | Self::Show { json, .. }
            | Self::Rm { json, .. }
            | Self::Gc { json } => *json,
        }
    }
}
