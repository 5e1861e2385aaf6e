//! The folded words of sites in English, German, French and Spanish, and common ones of a few more languages.

/// Defines lists of phrases, and a list of the lists.
macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident: [$($phrase:literal,)*])*) => {
        $($(#[$doc])* pub(in super::super) const $name: &[&str] = &[$($phrase),*];)*
        #[cfg(test)]
        pub(super) const ALL: &[&[&str]] = &[$($name),*];
    };
}

lists! {
    PASSWORD: [
        "password", "passwort", "kennwort", "mot de passe", "mdp", "contrasena", "clave", "senha", "wachtwoord",
        "passphrase", "passwd", "pwd", "pass", "haslo", "losenord", "parola", "palavra passe",
    ]

    NEW_PASSWORD: [
        "new password", "confirm password", "confirm your password", "repeat password", "retype password",
        "re enter password", "neues passwort", "passwort wiederholen", "passwort bestatigen", "nouveau mot de passe",
        "confirmer le mot de passe", "confirmez le mot de passe", "nueva contrasena", "confirmar contrasena",
        "repetir contrasena", "create password", "create a password", "choose a password",
    ]

    EMAIL: [
        "email", "e mail", "mail", "courriel", "correo", "adresse mail", "emailadresse", "mailadresse", "e mailadresse",
        "emailaddress", "epost", "emailed", "mailed",
    ]

    PHONE: [
        "phone", "mobile", "telephone", "tel", "telefon", "handy", "handynummer", "telefonnummer", "mobilnummer",
        "telefono", "movil", "portable", "celular", "phonenumber", "mobil",
    ]

    USERNAME: [
        "username", "user name", "user id", "userid", "user", "login", "log in", "account", "account name",
        "account id", "benutzername", "nutzername", "benutzerkennung", "benutzer", "kennung", "anmeldename",
        "anmeldekennung", "zugangsnummer", "kundennummer", "mitgliedsnummer", "identifiant", "nom d utilisateur",
        "utilisateur", "numero client", "usuario", "nombre de usuario", "numero de cliente", "customer number",
        "customer id", "member number", "member id", "membership number", "identifier", "identification",
        "gebruikersnaam", "utente", "nome utente", "usuario o correo", "loginfmt", "uid", "uname", "screen name",
        "nickname", "access number", "dni",
    ]

    TENANT: [
        "company", "workspace", "tenant", "organization", "organisation", "domain", "subdomain", "firma", "unternehmen",
        "mandant", "societe", "entreprise", "empresa", "team", "region", "realm", "site", "store", "mandanten*",
        "standort",
    ]

    CODE: [
        "code", "otp", "one time", "onetime", "otc", "einmalcode", "einmalpasswort", "einmalkennwort",
        "bestatigungscode", "sicherheitscode", "prufcode", "verifizierungscode", "authentifizierungscode",
        "zugangscode", "token", "2fa", "mfa", "tfa", "two factor", "twofactor", "tan", "codigo", "verification",
        "passcode", "pin", "a usage unique", "totp", "digit", "ziffer", "chiffre", "digito", "codice", "kode",
    ]

    /// Words that mean a password beside a user name, and a code after the password.
    PIN: ["pin", "passcode",]

    /// Words of codes that are not for a login.
    OTHER_CODE: [
        "zip", "postal", "post code", "postcode", "promo", "promotion*", "coupon", "discount", "gift", "country code",
        "area code", "source code", "referral", "voucher", "postleitzahl", "plz", "gutschein*", "landervorwahl",
        "landesvorwahl", "code postal", "codigo postal", "invite", "invitation", "card", "country", "dialing",
        "indicatif",
    ]

    SEARCH: [
        "search", "suche", "suchen", "suchbegriff", "recherche", "rechercher", "chercher", "buscar", "busqueda",
        "query", "q", "zoeken", "cerca",
    ]

    NEWSLETTER: [
        "newsletter", "subscribe", "subscription", "mailing list", "abonnieren", "abonnez", "s abonner", "suscribir*",
        "suscribete", "boletin", "infolettre", "notify me", "updates",
    ]

    LOGIN: [
        "sign in", "signin", "log in", "login", "log on", "logon", "sign on", "anmelden", "anmeldung", "einloggen",
        "log dich ein", "melde dich an", "melden sie sich an", "connexion", "se connecter", "connectez vous",
        "me connecter", "s identifier", "identifiez vous", "iniciar sesion", "inicia sesion", "inicio de sesion",
        "acceder", "accede", "entrar", "ingresar", "ingresa", "accedi", "aanmelden", "inloggen", "zaloguj", "logga in",
        "iniciar sessao", "sign into", "log into", "mein konto", "einloggen bei", "welcome back", "willkommen zuruck",
    ]

    NEXT: [
        "next", "continue", "proceed", "weiter", "fortfahren", "fortsetzen", "suivant", "continuer", "poursuivre",
        "siguiente", "continuar", "avanti", "volgende", "seguinte", "submit", "go", "ok", "enter", "absenden", "senden",
        "envoyer", "enviar", "valider", "done", "let s go",
    ]

    VERIFY: [
        "verify", "confirm", "validate", "check", "bestatigen", "uberprufen", "verifizieren", "prufen", "verifier",
        "confirmer", "valider", "verificar", "confirmar", "comprobar", "authenticate", "unlock",
    ]

    REGISTER: [
        "sign up", "signup", "register", "registration", "create account", "create an account", "create your account",
        "create new account", "join", "join now", "registrieren", "konto erstellen", "konto anlegen", "neues konto",
        "jetzt registrieren", "s inscrire", "inscription", "inscrivez vous", "creer un compte", "creer mon compte",
        "creez un compte", "registrarse", "registrate", "crear cuenta", "crear una cuenta", "get started", "start free",
        "free trial", "new customer", "first name", "last name", "vorname", "nachname", "prenom", "nombre y apellidos",
        "apellido*", "registro", "sign up for free",
    ]

    FORGOT: [
        "forgot*", "forgotten", "reset", "recover*", "lost password", "trouble", "can t sign in", "can t log in",
        "can t access", "cannot access", "need help", "help", "vergessen", "zurucksetzen", "hilfe", "probleme",
        "oublie*", "reinitialiser", "aide", "olvid*", "restablecer", "ayuda", "recuperar", "support", "contact us",
        "kontakt", "no puedes acceder",
    ]

    RESEND: [
        "resend", "send again", "send new code", "new code", "get a new code", "didn t get", "didn t receive",
        "did not receive", "erneut senden", "neu senden", "nochmal senden", "neuen code", "renvoyer", "nouveau code",
        "reenviar", "nuevo codigo", "volver a enviar",
    ]

    BACK: [
        "back", "cancel", "go back", "not you", "change", "edit", "abbrechen", "zuruck", "nicht sie", "nicht du",
        "andern", "annuler", "retour", "modifier", "cancelar", "volver", "atras", "cambiar", "close", "schliessen",
        "fermer", "cerrar", "previous", "deny", "ablehnen",
    ]

    SHOW: [
        "show", "hide", "show password", "hide password", "reveal", "anzeigen", "einblenden", "ausblenden", "afficher",
        "masquer", "mostrar", "ocultar", "toggle", "eye",
    ]

    LEGAL: [
        "privacy", "terms", "policy", "imprint", "impressum", "datenschutz*", "agb", "nutzungsbedingungen",
        "confidentialite", "conditions", "mentions legales", "privacidad", "terminos", "condiciones", "download",
        "app store", "google play", "play store", "follow", "folge*", "suivez", "siguenos", "learn more",
        "mehr erfahren", "en savoir plus", "mas informacion", "about", "careers", "blog", "status", "language",
        "sprache", "langue", "idioma", "share", "teilen", "partager", "compartir",
    ]

    REMEMBER: [
        "remember", "remember me", "keep me signed in", "keep me logged in", "stay signed in", "stay logged in",
        "trust this", "don t ask again", "angemeldet bleiben", "eingeloggt bleiben", "zugangsdaten merken",
        "anmeldung merken", "merken", "gerat vertrauen", "diesem gerat vertrauen", "nicht erneut fragen", "se souvenir",
        "rester connecte", "souviens", "memoriser", "recuerdame", "recordarme", "recordar", "recuerda", "mantener*",
        "no cerrar sesion", "permanecer conectado", "ricordami", "onthoud", "trust device", "remember device",
    ]

    AGREE_TERMS: [
        "i agree", "i accept", "accept the terms", "agree to the terms", "terms of use", "terms of service",
        "terms and conditions", "ich akzeptiere", "ich stimme", "nutzungsbedingungen", "j accepte",
        "conditions d utilisation", "acepto", "condiciones de uso", "terminos y condiciones",
    ]

    SMS: [
        "sms", "text message", "text", "texted", "text me", "text a code", "kurznachricht", "textnachricht",
        "message texte", "par texto", "texto", "mensaje de texto", "mensaje", "short message", "whatsapp",
        "phone number ending", "number ending", "ending in", "mobile number", "mobile phone", "handynummer",
        "telefonnummer", "your phone number", "numero de telefono", "numero de telephone", "mobilnummer",
        "numero de portable",
    ]

    CALL: [
        "call", "call me", "phone call", "voice", "voice call", "anruf", "anrufen", "appel", "appelez", "llamada",
        "llamar", "telefonanruf",
    ]

    TOTP: [
        "authenticator", "authenticator app", "authentication app", "authentication application",
        "authentifizierungs app", "authentifikator*", "authentifizierungsapp", "totp", "google authenticator", "authy",
        "application d authentification", "application authenticator", "app de autenticacion",
        "aplicacion de autenticacion", "autenticador", "code generator", "verification app", "two factor app",
        "security app", "2fa app", "mfa app", "authenticator code", "authentication code", "authenticator application",
        "mfa code", "mobile app", "authentifizierungscode",
    ]

    PUSH: [
        "push", "notification", "notifications", "approve", "approval", "benachrichtigung", "notificacion", "prompt",
        "tap yes", "genehmigen", "approuver", "approuvez", "aprobar", "aprueba", "freigabe", "freigeben",
    ]

    KEY: [
        "passkey", "security key", "passkeys", "sicherheitsschlussel", "cle de securite", "llave de seguridad",
        "clave de acceso", "hauptschlussel", "cle d acces", "fingerprint", "face id", "touch id", "windows hello",
        "webauthn", "fido", "biometric*", "usb key",
    ]

    BACKUP: [
        "backup code", "recovery code", "backup codes", "recovery codes", "ersatzcode", "wiederherstellungscode",
        "backup", "code de secours", "codigo de respaldo",
    ]

    OTHER_WAY: [
        "another way", "other way", "another method", "other method", "different method", "different way",
        "other options", "more options", "sign in options", "other ways", "alternative", "andere methode",
        "andere option", "andere moglichkeit*", "auf andere weise", "anmeldeoptionen", "weitere optionen",
        "autre methode", "autrement", "d une autre maniere", "autres options", "otra forma", "otro metodo",
        "de otra manera", "otras opciones", "having trouble", "use a different", "try another",
    ]

    SECOND_FACTOR: [
        "verify your identity", "verify it s you", "verify it is you", "two step", "two factor", "2 step", "2fa", "mfa",
        "multi factor", "second step", "second factor", "verification", "identity", "choose how", "how would you like",
        "how do you want", "choose a method", "select a method", "select a verification", "extra security",
        "bestatige dass sie", "bestatigen sie dass sie", "bestatigung in zwei schritten", "zwei faktor*", "zweistufig*", "identitat",
        "wahle eine methode", "wahlen sie eine methode", "verifiez", "verification en deux etapes",
        "double authentification", "choisissez une methode", "identite", "verificacion en dos pasos",
        "verifica tu identidad", "identidad", "elige un metodo", "elige como", "get a code", "receive a code",
        "receive your code", "send the code", "where should we send", "code erhalten", "recevoir un code",
        "recibir un codigo", "recibir el codigo", "code senden",
    ]

    HOW_TO_SIGN_IN: [
        "how do you want to sign in", "how would you like to sign in", "how do you want to log in",
        "how would you like to log in", "choose how to sign in", "choose how to log in", "choose a way to sign in",
        "choose a sign in method", "select a sign in method", "wie mochten sie sich anmelden",
        "wie mochtest du dich anmelden", "comment voulez vous vous connecter", "como quieres iniciar sesion",
    ]

    CHOOSE_ACCOUNT: [
        "choose an account", "pick an account", "select an account", "choose account", "select account",
        "which account", "konto auswahlen", "wahlen sie ein konto", "wahle ein konto", "konto aus",
        "choisissez un compte", "choisir un compte", "selectionnez un compte", "elige una cuenta", "seleccionar cuenta",
        "selecciona una cuenta", "elegir una cuenta", "who s using", "log in as", "continue as",
    ]

    /// The words beside the name of an SSO provider.
    WITH: [
        "with", "using", "via", "through", "mit", "uber", "avec", "con", "com", "met", "sign in", "log in", "continue",
        "weiter", "continuer", "continuar", "anmelden", "connexion", "se connecter", "iniciar sesion", "login", "sso",
        "single sign on",
    ]

    LOCKED: [
        "locked", "account is locked", "has been locked", "suspended", "deactivated", "account disabled",
        "account has been disabled", "blocked", "gesperrt", "deaktiviert", "verrouille*", "bloque", "bloquee",
        "suspendu*", "desactive*", "bloquead*", "suspendid*", "deshabilitad*", "banned",
    ]

    RATE: [
        "too many", "try again later", "try again in", "rate limit*", "zu viele", "zu oft", "spater erneut",
        "spater noch einmal", "trop de", "reessayez plus tard", "reessayez dans", "demasiados", "demasiadas",
        "intentalo mas tarde", "intentelo mas tarde", "intentalo de nuevo mas tarde", "vuelve a intentarlo mas tarde",
        "temporarily blocked", "vorubergehend gesperrt", "slow down",
    ]

    WRONG: [
        "incorrect*", "wrong", "invalid*", "not valid", "isn t valid", "is not correct", "isn t right", "not right",
        "does not match", "doesn t match", "don t match", "didn t match", "do not match", "did not match",
        "not recognized", "not recognised", "don t recognize", "don t recognise", "couldn t find", "could not find",
        "can t find", "cannot find", "doesn t exist", "does not exist", "no account", "not found", "unknown", "failed",
        "denied", "unable to sign", "unable to log", "unable to verify", "falsch*", "ungultig*", "nicht korrekt",
        "nicht richtig", "stimmt nicht", "stimmen nicht", "nicht gefunden", "nicht bekannt", "unbekannt*",
        "existiert nicht", "fehlgeschlagen", "inkorrekt*", "incorrecte", "invalide*", "errone*", "ne correspond*",
        "introuvable", "inconnu*", "n existe pas", "echoue", "echec", "mauvais*", "no valid*", "no coincide*",
        "no es correct*", "no es valid*", "no existe", "no encontramos", "no hemos encontrado", "no se encontro",
        "desconocid*", "equivocad*", "fallido", "sbagliat*", "onjuist*", "there was a problem", "could not be verified",
        "couldn t sign you in", "couldn t log you in", "try again", "please check", "nochmal", "noch einmal",
    ]

    EXPIRED: [
        "expired", "has expired", "abgelaufen", "expire", "expiree", "caducad*", "ha expirado", "no longer valid",
        "already been used", "bereits verwendet",
    ]

    SITE_FAILED: [
        "something went wrong", "an error occurred", "an error has occurred", "unexpected error",
        "internal server error", "service unavailable", "bad gateway", "temporarily unavailable", "technical problem*",
        "technical difficulties", "ein fehler ist aufgetreten", "etwas ist schiefgelaufen", "technischer fehler",
        "une erreur est survenue", "une erreur s est produite", "indisponible", "algo salio mal",
        "ha ocurrido un error", "se ha producido un error", "no disponible", "maintenance", "wartungsarbeiten",
    ]

    APPROVE_ELSEWHERE: [
        "approve", "approve the request", "approve sign in", "check your phone", "check your device",
        "check your mobile", "sent a notification", "we sent a push", "open the app", "open your", "tap yes",
        "on your phone", "on your device", "on your other device", "waiting for approval", "waiting for you",
        "confirm on your", "respond to the notification", "auf ihrem handy", "auf deinem handy", "auf ihrem smartphone",
        "auf deinem smartphone", "auf ihrem telefon", "benachrichtigung gesendet", "offnen sie die app",
        "offne die app", "in der app", "anfrage genehmigen", "sur votre telephone", "sur votre appareil",
        "ouvrez l application", "notification envoyee", "approuvez", "en tu telefono", "en su telefono",
        "en tu dispositivo", "abre la aplicacion", "abra la aplicacion", "hemos enviado una notificacion", "aprueba",
        "sent a push notification", "push sent",
    ]

    LINK_ELSEWHERE: [
        "check your email", "check your inbox", "check your mail", "sent you a link", "sent a link",
        "sent you an email", "sent an email", "emailed you", "magic link", "click the link", "click on the link",
        "link we sent", "follow the link", "we ve sent", "prufen sie ihr postfach", "posteingang", "postfach",
        "link geschickt", "link gesendet", "klicken sie auf den link", "klicke auf den link", "verifiez votre boite",
        "boite de reception", "boite mail", "lien envoye", "envoye un lien", "cliquez sur le lien", "revisa tu correo",
        "revise su correo", "bandeja de entrada", "enviado un enlace", "haz clic en el enlace",
        "haga clic en el enlace", "consulta tu correo",
    ]

    WAIT: [
        "loading", "please wait", "signing in", "signing you in", "logging in", "logging you in", "redirecting",
        "one moment", "just a moment", "just a second", "einen moment", "bitte warten", "wird geladen", "lade",
        "sie werden weitergeleitet", "anmeldung lauft", "chargement", "patientez", "veuillez patienter", "redirection",
        "cargando", "espere", "espera", "redirigiendo", "un momento", "processing", "verifying", "checking",
    ]

    UNFINISHED: [
        "verify", "verification", "almost there", "one more step", "one last step", "last step", "required action",
        "action required", "update your password", "change your password", "password has expired", "must change",
        "fast geschafft", "noch ein schritt", "bestatigen sie", "passwort andern", "presque", "derniere etape",
        "verifiez", "changer votre mot de passe", "ultimo paso", "casi", "verifica", "cambiar tu contrasena",
        "cambia tu contrasena", "accept the terms", "review the terms", "complete your profile", "session expired",
        "signed out", "logged out", "abgemeldet",
    ]

    SIGN_OUT: [
        "sign out", "signout", "log out", "logout", "log off", "logoff", "abmelden", "ausloggen", "abmeldung",
        "deconnexion", "se deconnecter", "me deconnecter", "cerrar sesion", "cerrar la sesion", "salir", "desconectar",
        "uitloggen", "afmelden", "esci", "disconnetti", "sair", "terminar sessao", "wyloguj", "logga ut",
    ]

    WELCOME: [
        "welcome", "signed in as", "logged in as", "hello", "hi", "dashboard", "my account", "your account", "inbox",
        "willkommen", "angemeldet als", "hallo", "ubersicht", "mein konto", "bienvenue", "connecte en tant", "bonjour",
        "tableau de bord", "mon compte", "bienvenido", "bienvenida", "hola", "mi cuenta", "panel",
        "signed in successfully", "you are signed in", "you are logged in", "you re in",
    ]

    ACCOUNT_MARKS: [
        "avatar", "user menu", "usermenu", "account menu", "accountmenu", "profile menu", "profile", "user nav",
        "logout", "signout", "sign out", "log out", "settings",
    ]

    COOKIE: [
        "cookie", "cookies", "consent", "gdpr", "dsgvo", "rgpd", "tracking", "your privacy", "ihre privatsphare",
        "deine privatsphare", "vie privee", "tu privacidad", "su privacidad", "einwilligung", "consentement",
        "consentimiento", "onetrust", "cmp", "cookiebot", "partners", "datenschutzeinstellungen", "privacy settings",
    ]

    REFUSE_COOKIES: [
        "reject", "reject all", "decline", "decline all", "refuse", "refuse all", "deny", "deny all", "only necessary",
        "necessary only", "necessary cookies only", "essential only", "only essential", "essential cookies only",
        "only required", "use necessary cookies only", "continue without accepting", "alle ablehnen", "ablehnen",
        "nur notwendige", "nur erforderliche", "nur essenzielle", "notwendige cookies", "ohne zustimmung",
        "tout refuser", "refuser", "continuer sans accepter", "uniquement les necessaires", "rechazar", "rechazar todo",
        "rechazar todas", "solo necesarias", "solo las necesarias", "solo esenciales", "rifiuta", "reject optional",
    ]

    ACCEPT_COOKIES: [
        "accept", "accept all", "allow all", "allow cookies", "allow", "agree", "i agree", "agree and close", "ok",
        "okay", "got it", "understood", "i understand", "alle akzeptieren", "akzeptieren", "zustimmen", "alle annehmen",
        "annehmen", "einverstanden", "verstanden", "alles klar", "tout accepter", "accepter", "j accepte", "d accord",
        "compris", "aceptar", "aceptar todo", "aceptar todas", "acepto", "entendido", "de acuerdo", "accetta",
        "akkoord", "accept and continue", "accept cookies", "save", "save settings", "confirm my choices", "continue",
    ]

    CLOSE: [
        "close", "dismiss", "x", "schliessen", "fermer", "cerrar", "chiudi", "sluiten", "no thanks", "not now",
        "nein danke", "non merci", "no gracias",
    ]

    DECLINE: [
        "not now", "skip", "skip for now", "maybe later", "later", "remind me later", "no thanks", "do this later",
        "ask me later", "jetzt nicht", "uberspringen", "spater", "nein danke", "vielleicht spater", "spater erinnern",
        "plus tard", "pas maintenant", "ignorer", "passer", "non merci", "me le rappeler plus tard", "ahora no",
        "omitir", "saltar", "mas tarde", "quiza mas tarde", "no gracias", "recordarmelo mas tarde",
    ]

    STAY: [
        "stay signed in", "keep me signed in", "stay logged in", "remain signed in", "angemeldet bleiben",
        "rester connecte", "mantener la sesion", "seguir conectado", "mantener la sesion iniciada",
        "permanecer conectado", "trust this device", "trust this browser", "diesem gerat vertrauen",
        "diesem browser vertrauen", "faire confiance", "confiar en este",
    ]

    YES: [
        "yes", "ja", "oui", "si", "sim", "stay signed in", "angemeldet bleiben", "rester connecte", "ok", "continue",
        "weiter", "continuer", "continuar", "trust", "trust browser", "trust this device", "vertrauen",
    ]

    GO_ON: [
        "continue", "ok", "okay", "next", "proceed", "got it", "weiter", "fortfahren", "verstanden", "continuer",
        "suivant", "compris", "continuar", "siguiente", "entendido", "allow", "authorize", "authorise", "accept",
        "agree", "erlauben", "zulassen", "autorisieren", "zustimmen", "akzeptieren", "autoriser", "accepter",
        "autorizar", "permitir", "aceptar", "confirm", "bestatigen", "confirmer", "confirmar", "done", "fertig",
        "termine", "listo", "go to dashboard",
    ]

    CAPTCHA: [
        "captcha", "characters you see", "characters in the picture", "characters in the image", "letters you see",
        "text in the image", "not a robot", "are human", "re human", "you re human", "zeichen im bild",
        "zeichen aus dem bild", "kein roboter", "sie ein mensch", "caracteres de l image", "pas un robot",
        "etes humain", "caracteres de la imagen", "no eres un robot", "no soy un robot", "eres humano", "ich bin kein",
        "je ne suis pas un robot",
    ]
}
